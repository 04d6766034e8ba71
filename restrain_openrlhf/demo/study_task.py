"""Writes the data of the study on the demo task: two regimes, one of them with its own model.

`python -m restrain_openrlhf.demo.study_task --out runs/study`; the second model takes some minutes on one core.
"""

from pathlib import Path
from typing import Annotated

import typer

from restrain_openrlhf.demo.make_model import write_model
from restrain_openrlhf.demo.task import heldout_problems, training_problems, write_gold, write_prompts

PROMPTS = 672
HELDOUT = 200
REGIMES = ("right", "spurious")
# Share of the second model's examples that lose every carry, so that its wrong answers agree with each other.
CARELESS = 0.5


def main(out: Annotated[Path, typer.Option(help="Output folder.")] = Path("runs/study")) -> None:
    """Write prompts, gold files, held-out problems, and a model with spurious majorities."""
    problems, heldout = training_problems(PROMPTS), heldout_problems(HELDOUT)
    for regime in REGIMES:
        write_prompts(out / regime / "prompts.jsonl", problems)
        write_gold(out / regime / "prompts-with-gold.jsonl", problems)
        write_gold(out / regime / "heldout.jsonl", heldout)
    model = out / "spurious" / "model"
    if not model.exists():
        write_model(model, CARELESS)


if __name__ == "__main__":
    typer.run(main)
