"""pass@1 and maj@k of the votes on a set of problems, with a bootstrap interval over problems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.grade import GradeRow, grade_answers
from restrain_openrlhf.evaluation.result import scores
from restrain_openrlhf.reference import ReferenceRow


@dataclass(frozen=True)
class Accuracy:
    """Means over problems, in [0, 1]; `low` and `high` bound pass@1 at 95 %. `k` rollouts per problem."""

    pass_at_1: float
    low: float
    high: float
    maj_at_k: float
    k: int
    problems: int
    missing_share: float


def accuracy(rows: Sequence[ReferenceRow], gold: Mapping[str, str]) -> Accuracy:
    """Accuracy of `rows` (k sampled answers per problem); `gold` maps a problem's hash to its answer.

    Raises DataError for a problem without gold.
    """
    found, k = scores([_graded(row, gold) for row in rows]), rows[0].n
    return Accuracy(
        pass_at_1=found.pass_at_1,
        low=found.low,
        high=found.high,
        maj_at_k=found.maj_at_k[k],
        k=k,
        problems=len(rows),
        missing_share=found.missing_share,
    )


def _graded(row: ReferenceRow, gold: Mapping[str, str]) -> GradeRow:
    if row.problem_hash not in gold:
        raise DataError(f"The problem of row {row.id!r} has no gold answer. Give the file the rollouts were made from.")
    return grade_answers(str(row.id), row.answers, gold[row.problem_hash])
