"""Files of rollouts from anywhere: rows {id, problem, responses}, with gold in them or in a file beside them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.data.firewall import load_gold
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.data.jsonl import read_numbered_rows
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.grade import GradeRow, grade_problem


class GradedRollouts(BaseModel):
    """One problem's rollouts, as `restrain score` reads them; `reference_correct`: another grader's verdict on each."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str | int
    problem: str
    responses: tuple[str, ...]
    answer: str | int | float | None = None
    reference_correct: tuple[bool, ...] | None = None


@dataclass(frozen=True)
class Difference:
    """One response on which two gradings differ."""

    id: str
    response: int
    answer: str | None
    gold: str
    ours: bool

    def __str__(self) -> str:
        """One line for a list."""
        words = {True: "right", False: "wrong"}
        return (
            f"{self.id}, response {self.response}: {self.answer!r} for gold {self.gold!r}: "
            f"ours {words[self.ours]}, reference {words[not self.ours]}"
        )


def read_rollouts(path: Path) -> list[GradedRollouts]:
    """All rows. Raises DataError for a damaged row, a row without responses, and an empty file."""
    rows = read_numbered_rows(path, GradedRollouts)
    for number, row in rows:
        if not row.responses:
            raise DataError(f"{path}, line {number}: responses is empty. Remove the row.")
        if row.reference_correct is not None and len(row.reference_correct) != len(row.responses):
            raise DataError(f"{path}, line {number}: reference_correct has not one verdict per response. Fix the row.")
    if not rows:
        raise DataError(f"{path}: has no rows. Give a file of rollouts.")
    return [row for _, row in rows]


def grade_rollouts(rollouts: Sequence[GradedRollouts], path: Path, gold: Path | None) -> list[GradeRow]:
    """Grades of every row, its gold from `gold` (joined by problem) where given, else from the row.

    Raises DataError for a row without gold.
    """
    by_problem = load_gold(gold) if gold else {}
    return [grade_problem(str(row.id), row.responses, _gold(row, path, by_problem, gold)) for row in rollouts]


def _gold(row: GradedRollouts, path: Path, by_problem: dict[str, str], file: Path | None) -> str:
    answer = by_problem.get(text_hash(row.problem)) if file else row.answer
    if answer is None:
        where = f"{file} has no answer to it" if file else "it has no `answer`"
        raise DataError(f"{path}: the row {row.id!r} cannot be graded: {where}. Give its gold with --gold FILE.")
    return str(answer)


def differences(rollouts: Sequence[GradedRollouts], grades: Sequence[GradeRow]) -> list[Difference]:
    """Every response that the rows' reference grading judges otherwise."""
    return [
        Difference(row.id, place, row.answers[place], row.gold, correct)
        for given, row in zip(rollouts, grades, strict=True)
        for place, (correct, verdict) in enumerate(
            zip(row.correct, given.reference_correct or row.correct, strict=True)
        )
        if correct != verdict
    ]
