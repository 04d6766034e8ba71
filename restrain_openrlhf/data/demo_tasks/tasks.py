"""The tasks of the demo by name."""

from collections.abc import Mapping

from restrain_openrlhf.data.demo_tasks.addition import ADDITION
from restrain_openrlhf.data.demo_tasks.plain_english import ARITHMETIC, CAPITALS
from restrain_openrlhf.data.demo_tasks.premise import PREMISE
from restrain_openrlhf.data.demo_tasks.problems import DemoTask
from restrain_openrlhf.data.demo_tasks.programs import PROGRAMS
from restrain_openrlhf.data.demo_tasks.words import WORDS
from restrain_openrlhf.errors import ConfigError

__all__ = ["ADDITION", "ARITHMETIC", "CAPITALS", "PREMISE", "PROGRAMS", "TASKS", "WORDS", "DemoTask", "task_named"]

TASKS: Mapping[str, DemoTask] = {task.name: task for task in (WORDS, PREMISE, ADDITION, PROGRAMS, CAPITALS, ARITHMETIC)}


def task_named(name: str) -> DemoTask:
    """The task of that name. Raises ConfigError if there is none."""
    if name not in TASKS:
        raise ConfigError(f"There is no demo task {name!r}. The tasks are: {', '.join(TASKS)}.")
    return TASKS[name]
