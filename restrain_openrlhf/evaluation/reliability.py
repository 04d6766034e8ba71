"""How far a majority can be trusted: pass@n and the majority's accuracy by the number of rollouts in it."""

import csv
import io
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.estimators import maj_at_k, wilson_interval
from restrain_openrlhf.evaluation.grade import GradeRow
from restrain_openrlhf.vote_statistics import votes_of


class SizeRow(BaseModel):
    """The problems whose majority has `size` of n rollouts; shares in [0, 1], bounds at 95 % (Wilson).

    `pass_at_n`: some rollout is right. `majority_accuracy`: the majority is. `mean_accuracy`: share of right rollouts.
    """

    model_config = ConfigDict(frozen=True)

    size: int
    n: int
    problems: int
    pass_at_n: float
    majority_accuracy: float
    majority_low: float
    majority_high: float
    mean_accuracy: float


def reliability(grades: Sequence[GradeRow]) -> list[SizeRow]:
    """One row per majority size that occurs, in order. Raises DataError where problems differ in their n."""
    sizes = {len(row.answers) for row in grades}
    if len(sizes) != 1:
        raise DataError(f"The problems have {sorted(sizes)} rollouts; majority sizes compare only at one n.")
    n = sizes.pop()
    groups: dict[int, list[GradeRow]] = defaultdict(list)
    for row in grades:
        groups[votes_of(row.answers).majority_count].append(row)
    return [_size_row(size, n, groups[size]) for size in sorted(groups)]


def _size_row(size: int, n: int, rows: Sequence[GradeRow]) -> SizeRow:
    right = [maj_at_k([row], n) for row in rows]
    low, high = wilson_interval(round(sum(right)), len(right))
    return SizeRow(
        size=size,
        n=n,
        problems=len(rows),
        pass_at_n=float(np.mean([any(row.correct) for row in rows])),
        majority_accuracy=float(np.mean(right)),
        majority_low=low,
        majority_high=high,
        mean_accuracy=float(np.mean([np.mean(row.correct) for row in rows])),
    )


def as_csv(rows: Sequence[SizeRow]) -> str:
    """The table behind the figure."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(SizeRow.model_fields), lineterminator="\n")
    writer.writeheader()
    writer.writerows(row.model_dump() for row in rows)
    return text.getvalue()
