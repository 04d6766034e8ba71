"""The tasks of the demo by name: problems, preset, and the folder of the shipped base model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from restrain_openrlhf.data.demo_tasks import addition, premise, programs, words
from restrain_openrlhf.data.demo_tasks.problems import DrawnProblems
from restrain_openrlhf.data.problems import Problem
from restrain_openrlhf.errors import ConfigError

MODELS = Path(__file__).parent / "models"


@dataclass(frozen=True)
class DemoTask:
    """A task of the demo, with its default steps and methods.

    A run of more than `episode` prompts visits the same prompts again; None: every step has new prompts.
    """

    name: str
    about: str
    training_problems: Callable[[int], list[Problem]]
    heldout_problems: Callable[[int], list[Problem]]
    preset: str
    steps: int
    methods: tuple[str, ...]
    episode: int | None = None

    @property
    def model(self) -> Path:
        return MODELS / self.name

    def training_set(self, prompts: int) -> list[Problem]:
        """The problems of a run that visits `prompts` prompts."""
        return self.training_problems(prompts if self.episode is None else min(prompts, self.episode))


_SHORTCUT = {"steps": 20, "methods": ("restrain", "ttrl"), "episode": 640}


def _task(name: str, about: str, problems: DrawnProblems, preset: str, **run: Any) -> DemoTask:
    return DemoTask(name, about, problems.training_problems, problems.heldout_problems, preset, **run)


WORDS = _task("words", "English words in German", words.PROBLEMS, "cpu/demo_words", **_SHORTCUT)
PREMISE = _task("premise", "digit products", premise.PROBLEMS, "cpu/demo", **_SHORTCUT | {"steps": 40})
ADDITION = _task("addition", "additions", addition.PROBLEMS, "cpu/demo_addition", steps=20, methods=("restrain",))
PROGRAMS = _task("programs", "Python functions", programs.PROBLEMS, "cpu/demo_programs", **_SHORTCUT)
TASKS: Mapping[str, DemoTask] = {task.name: task for task in (WORDS, PREMISE, ADDITION, PROGRAMS)}


def task_named(name: str) -> DemoTask:
    """The task of that name. Raises ConfigError if there is none."""
    if name not in TASKS:
        raise ConfigError(f"There is no demo task {name!r}. The tasks are: {', '.join(TASKS)}.")
    return TASKS[name]
