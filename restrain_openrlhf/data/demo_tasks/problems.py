"""The problems of a demo task: how so many distinct ones are drawn, and the files they are written to."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from restrain_openrlhf.data.gold import PromptOnly
from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.data.problems import Problem
from restrain_openrlhf.errors import DataError


def distinct(drawn: Iterable[Problem], count: int, most: int) -> list[Problem]:
    """The first `count` problems of different text. Raises DataError where the task gives fewer than `count`."""
    if not 1 <= count <= most:
        raise DataError(
            f"{count} problems were requested; this demo task gives 1 to {most:,}. "
            "Choose another number of steps or of prompts per step."
        )
    found: dict[str, Problem] = {}
    for problem in drawn:
        found.setdefault(problem.problem, problem)
        if len(found) == count:
            break
    return list(found.values())


def write_prompts(path: Path, problems: Sequence[Problem]) -> None:
    """The training file: prompts only."""
    write_rows(path, (PromptOnly(id=problem.id, problem=problem.problem, row=problem.row) for problem in problems))


def write_gold(path: Path, problems: Sequence[Problem]) -> None:
    """Problems with their answers, for evaluation and for the supervised upper bound."""
    write_rows(path, problems)
