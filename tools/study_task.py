"""Writes the data of the study: three regimes on the demo's tasks, one of them with a model of its own.

`python -m tools.study_task --out runs/study`; that model takes some minutes on one core.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from restrain_openrlhf.commands.options import to_folder
from restrain_openrlhf.data.demo_tasks.problems import write_gold, write_prompts
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION, PREMISE, DemoTask
from tools.make_model import write_model

HELDOUT = 200
# Each regime's task, and its training prompts: 21 steps of additions, and the premise task's whole episode.
REGIMES: Mapping[str, tuple[DemoTask, int]] = {
    "right": (ADDITION, 672),
    "spurious": (ADDITION, 672),
    "premise": (PREMISE, 640),
}


def main(out: Annotated[Path, to_folder("Output folder.")] = Path("runs/study")) -> None:
    """Write prompts, gold files, held-out problems, and a model with spurious majorities."""
    for regime, (task, prompts) in REGIMES.items():
        write_regime(out / regime, task, prompts)
    model = out / "spurious" / "model"
    if not model.exists():
        write_model(model, "careless")


def write_regime(folder: Path, task: DemoTask, prompts: int) -> None:
    """A regime's prompts, the same with gold, and its held-out problems."""
    problems = task.training_set(prompts)
    write_prompts(folder / "prompts.jsonl", problems)
    write_gold(folder / "prompts-with-gold.jsonl", problems)
    write_gold(folder / "heldout.jsonl", task.heldout_problems(HELDOUT))


if __name__ == "__main__":
    typer.run(main)
