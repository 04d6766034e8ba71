"""pass@1 and maj@k of a set of problems, with a bootstrap interval over problems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.estimators import bootstrap_interval
from restrain_openrlhf.reference import ReferenceRow
from restrain_openrlhf.scoring import class_of
from restrain_openrlhf.vote_statistics import majority_answer


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


def accuracy(rows: Sequence[ReferenceRow], gold: Mapping[str, str], seed: int = 0) -> Accuracy:
    """Accuracy of `rows` (k sampled answers per problem); `gold` maps a problem's hash to its answer.

    Raises DataError for a problem without gold.
    """
    shares = np.array([correct_share(row.answers, _gold_of(row, gold)) for row in rows])
    votes = [majority_answer(row.answers) for row in rows]
    majority = [class_of(_gold_of(row, gold), [vote]) is not None for row, vote in zip(rows, votes, strict=True)]
    low, high = bootstrap_interval(shares.tolist(), seed)
    return Accuracy(
        pass_at_1=float(shares.mean()),
        low=low,
        high=high,
        maj_at_k=float(np.mean(majority)),
        k=rows[0].n,
        problems=len(rows),
        missing_share=float(np.mean([row.missing_share for row in rows])),
    )


def correct_share(answers: Sequence[str | None], gold: str) -> float:
    """Share of one problem's rollouts whose answer equals gold; a missing answer is wrong."""
    return float(np.mean([class_of(gold, [answer]) is not None for answer in answers]))


def _gold_of(row: ReferenceRow, gold: Mapping[str, str]) -> str:
    if row.problem_hash not in gold:
        raise DataError(f"The problem of row {row.id!r} has no gold answer. Give the file the rollouts were made from.")
    return gold[row.problem_hash]
