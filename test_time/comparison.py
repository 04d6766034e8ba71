"""What the adaptation was worth, where a user has gold: problems newly solved, kept and lost, joined by id."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.data.jsonl import read_numbered_rows
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.estimators import majority_right, mean_pass_at_k
from restrain_openrlhf.evaluation.grade import grade_answers
from restrain_openrlhf.reference import ReferenceRow

Id = str | int | None


class Gold(BaseModel):
    """A row of the gold file; other keys are let through unread."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str | int
    answer: str | int | float


class Verdict(BaseModel):
    """One problem before and after: pass@1 over its votes, and whether the majority is right."""

    model_config = ConfigDict(frozen=True)

    id: str | int
    pass_before: float
    pass_after: float
    majority_before: bool
    majority_after: bool


class Comparison(BaseModel):
    """Means over problems, in [0, 1]. Solved, kept and lost are of the majority's answer; `k` votes per problem."""

    model_config = ConfigDict(frozen=True)

    problems: int
    k: int
    pass_before: float
    pass_after: float
    majority_before: float
    majority_after: float
    solved: tuple[str | int, ...]
    kept: int
    lost: tuple[str | int, ...]


def read_gold(path: Path) -> dict[str, str]:
    """Answers by id, as text. Raises DataError naming file and line for a damaged row or an id that stands twice."""
    gold: dict[str, str] = {}
    for number, row in read_numbered_rows(path, Gold):
        if str(row.id) in gold:
            raise DataError(f"{path}, line {number}: the id {row.id!r} stands twice. Keep one row of each problem.")
        gold[str(row.id)] = str(row.answer)
    return gold


def compare(before: Sequence[ReferenceRow], after: Sequence[ReferenceRow], gold: Mapping[str, str]) -> Comparison:
    """The base model's votes against the adapted model's. Raises DataError for a problem that has no gold."""
    base = {str(row.id): row for row in before}
    verdicts = [_verdict(base[str(row.id)], row, gold) for row in after]
    count = len(verdicts)
    return Comparison(
        problems=count,
        k=after[0].n,
        pass_before=sum(verdict.pass_before for verdict in verdicts) / count,
        pass_after=sum(verdict.pass_after for verdict in verdicts) / count,
        majority_before=sum(verdict.majority_before for verdict in verdicts) / count,
        majority_after=sum(verdict.majority_after for verdict in verdicts) / count,
        solved=tuple(v.id for v in verdicts if v.majority_after and not v.majority_before),
        kept=sum(v.majority_after and v.majority_before for v in verdicts),
        lost=tuple(v.id for v in verdicts if v.majority_before and not v.majority_after),
    )


def _verdict(before: ReferenceRow, after: ReferenceRow, gold: Mapping[str, str]) -> Verdict:
    answer = gold.get(str(after.id))
    if answer is None or after.id is None:
        raise DataError(
            f"The problem with id {after.id!r} has no answer in the gold file. Add it: gold is joined by id."
        )
    base, adapted = (grade_answers(str(after.id), row.answers, answer) for row in (before, after))
    return Verdict(
        id=after.id,
        pass_before=mean_pass_at_k([base], 1),
        pass_after=mean_pass_at_k([adapted], 1),
        majority_before=majority_right(base.answers, base.correct),
        majority_after=majority_right(adapted.answers, adapted.correct),
    )
