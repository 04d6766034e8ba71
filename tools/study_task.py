"""Writes the data of the study: three regimes on the demo's tasks, one of them with a model of its own, and labels.

`python -m tools.study_task --out runs/study`; the model takes some minutes on one core, and so do the votes from which
labels are chosen.
"""

import random
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from restrain_openrlhf.commands.options import to_folder
from restrain_openrlhf.commands.premise.label import choose
from restrain_openrlhf.config.command_line import find_config
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.data.demo_tasks.premise import PREMISE
from restrain_openrlhf.data.demo_tasks.problems import DemoTask, write_gold, write_prompts
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.data.outputs import whole_file
from restrain_openrlhf.data.problems import Problem
from restrain_openrlhf.reference.offline_pass import sample_reference
from tools.make_model import write_model

HELDOUT = 200
# Each regime's task, and its training prompts: 21 steps of additions, and the premise task's whole episode.
REGIMES: Mapping[str, tuple[DemoTask, int]] = {
    "right": (ADDITION, 672),
    "spurious": (ADDITION, 672),
    "premise": (PREMISE, 640),
}
# Prompts with a label, a twentieth of all and a batch of a step; and the seed of the random choice.
LABELS, SEED = 32, 0


def main(
    out: Annotated[Path, to_folder("Output folder.")] = Path("runs/study"),
    labels: Annotated[bool, typer.Option(help="Also sample each regime's reference, and label prompts by it.")] = True,
) -> None:
    """Write prompts, gold files, held-out problems, a model with spurious majorities, and prompts with a few labels."""
    for regime, (task, prompts) in REGIMES.items():
        write_regime(out / regime, task, prompts)
    model = out / "spurious" / "model"
    if not model.exists():
        write_model(model, "careless")
    for regime, (task, prompts) in REGIMES.items() if labels else ():
        write_labels(out / regime, f"cpu/study/{regime}/restrain", task.training_set(prompts))


def write_regime(folder: Path, task: DemoTask, prompts: int) -> None:
    """A regime's prompts, the same with gold, and its held-out problems."""
    problems = task.training_set(prompts)
    write_prompts(folder / "prompts.jsonl", problems)
    write_gold(folder / "prompts-with-gold.jsonl", problems)
    write_gold(folder / "heldout.jsonl", task.heldout_problems(HELDOUT))


def write_labels(folder: Path, preset: str, problems: Sequence[Problem]) -> None:
    """The prompts with LABELS gold answers, chosen by `restrain label` or at random, and the chosen problems alone."""
    placed = {
        "reference": str(folder / "reference.jsonl"),
        "openrlhf.data.prompt_dataset": str(folder / "prompts.jsonl"),
    }
    run = load_run_config(find_config(preset), placed)
    sample_reference(run, folder / "reference.jsonl")
    chosen = {candidate.problem_hash for candidate, _chance in choose(run, LABELS)}
    drawn = {text_hash(each.text) for each in random.Random(SEED).sample(list(problems), LABELS)}
    write_labelled(folder / "labels-chosen.jsonl", problems, chosen)
    write_labelled(folder / "labels-random.jsonl", problems, drawn)
    write_gold(folder / "labels-alone.jsonl", [each for each in problems if text_hash(each.text) in chosen])


def write_labelled(path: Path, problems: Sequence[Problem], labelled: Collection[str]) -> None:
    """All problems; those whose hash is `labelled` with their answer, the others with an empty one."""
    with whole_file(path) as file:
        for each in problems:
            answer = each.answer if text_hash(each.text) in labelled else ""
            file.write(dump({"id": each.id, "problem": each.problem, "answer": answer}))


if __name__ == "__main__":
    typer.run(main)
