"""What is computed from right and wrong responses: pass@k, maj@k, and a confidence interval over problems."""

from collections.abc import Sequence
from math import comb, sqrt

import numpy as np

from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.grade import GradeRow
from restrain_openrlhf.vote_statistics import majority_answer

BOOTSTRAP_SAMPLES = 2000


def pass_at_k(n: int, right: int, k: int) -> float:
    """Unbiased chance that k of n responses hold a right one: 1 − C(n − c, k) / C(n, k) (Chen et al., 2021).

    Raises DataError unless 0 ≤ right ≤ n and 1 ≤ k ≤ n.
    """
    if not (0 <= right <= n and 1 <= k <= n):
        raise DataError(f"pass@{k} of {right} right among {n} responses is not defined: 1 <= k <= n is needed.")
    return 1.0 - comb(n - right, k) / comb(n, k)


def mean_pass_at_k(rows: Sequence[GradeRow], k: int) -> float:
    """pass@k averaged over problems."""
    return float(np.mean([pass_at_k(len(row.correct), sum(row.correct), k) for row in rows]))


def maj_at_k(rows: Sequence[GradeRow], k: int) -> float:
    """Share of problems whose majority answer among k responses is right.

    With n responses, the mean over the n // k groups of consecutive ones: each is a sample of k, so it is unbiased.
    """
    return float(np.mean([np.mean([_group_right(row, start, k) for start in _groups(row, k)]) for row in rows]))


def _groups(row: GradeRow, k: int) -> range:
    if not 1 <= k <= len(row.answers):
        raise DataError(f"maj@{k} of {len(row.answers)} responses is not defined: 1 <= k <= n is needed.")
    return range(0, len(row.answers) - k + 1, k)


def _group_right(row: GradeRow, start: int, k: int) -> bool:
    return majority_right(row.answers[start : start + k], row.correct[start : start + k])


def majority_right(answers: Sequence[str | None], correct: Sequence[bool]) -> bool:
    """Whether the first response that gave the majority answer was graded right; no answer is wrong."""
    majority = majority_answer(answers)
    return majority is not None and correct[answers.index(majority)]


def bootstrap_interval(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """Bounds of the mean at 95 %, problems drawn with replacement; `values` holds one number per problem."""
    numbers = np.asarray(values, dtype=float)
    means = np.random.default_rng(seed).choice(numbers, (BOOTSTRAP_SAMPLES, len(numbers))).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def wilson_interval(right: float, of: float) -> tuple[float, float]:
    """Bounds of a share at 95 % (Wilson, 1927): honest for few problems, where a bootstrap sees no spread."""
    share, z = right / of, 1.959964
    middle = (share + z**2 / (2 * of)) / (1 + z**2 / of)
    half = z / (1 + z**2 / of) * sqrt(share * (1 - share) / of + z**2 / (4 * of**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def powers_up_to(n: int) -> list[int]:
    """1, 2, 4, … and n itself: the k for which pass@k and maj@k are reported."""
    return sorted({2**power for power in range(n.bit_length())} | {n})
