"""What a demo task's problems are, and the files they are written to."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.data.gold import PromptOnly, SupervisedRow
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.data.jsonl import read_rows, write_rows
from restrain_openrlhf.errors import DataError


@dataclass(frozen=True)
class TaskProblem:
    """One problem; `answer` is gold and must not reach label-free training."""

    id: str
    problem: str
    answer: str


def distinct(drawn: Iterable[TaskProblem], count: int, most: int) -> list[TaskProblem]:
    """The first `count` problems of different text. Raises DataError where the task gives fewer than `count`."""
    if not 1 <= count <= most:
        raise DataError(
            f"{count} problems were requested; this demo task gives 1 to {most:,}. "
            "Choose another number of steps or of prompts per step."
        )
    found: dict[str, TaskProblem] = {}
    for problem in drawn:
        found.setdefault(problem.problem, problem)
        if len(found) == count:
            break
    return list(found.values())


def write_prompts(path: Path, problems: Sequence[TaskProblem]) -> None:
    """The training file: prompts only."""
    write_rows(path, (PromptOnly(id=problem.id, problem=problem.problem) for problem in problems))


def write_gold(path: Path, problems: Sequence[TaskProblem]) -> None:
    """Problems with their answers, for evaluation and for the supervised upper bound."""
    write_rows(path, (SupervisedRow(id=row.id, problem=row.problem, answer=row.answer) for row in problems))


def gold_of(path: Path) -> dict[str, str]:
    """Answers of such a file by the hash of the problem."""
    return {text_hash(row.problem): row.answer for row in read_rows(path, SupervisedRow)}
