"""Copies benchmarks from the hub into a folder, for machines that do not reach it."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.data.gold_split import PromptOnly
from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.data.sources import HUB, load_rows
from restrain_openrlhf.evaluation.benchmarks import BENCHMARKS
from restrain_openrlhf.evaluation.loading import copy_in, load_benchmark


class _Row(BaseModel):
    """A row as the hub has it."""

    model_config = ConfigDict(extra="allow", frozen=True)


def copy_benchmark(name: str, folder: Path) -> Path:
    """Write `folder`/NAME.jsonl with the hub's rows, unless a copy is there; either is checked as an evaluation does.

    Raises DataError for an unknown name, a set that cannot be had, or a wrong row.
    """
    if place := copy_in(folder, name):
        load_benchmark(name, folder)
        return place
    load_benchmark(name)
    out = folder / f"{name}.jsonl"
    write_rows(out, (_Row.model_validate(row) for row in load_rows(BENCHMARKS[name].hub, HUB)))
    return out


def copy_problems(name: str, folder: Path) -> Path:
    """Write `folder`/NAME.jsonl with ids and problems alone, as test-time RL reads them, unless it is there.

    Raises DataError as `copy_benchmark`.
    """
    out = folder / f"{name}.jsonl"
    if not out.exists():
        problems = load_benchmark(name).problems
        write_rows(out, [PromptOnly(id=each.id, problem=each.problem) for each in problems])
    return out
