"""The advantage pair of a group in closed form: O(n + m), never an n × m matrix."""

from collections.abc import Callable

import numpy as np

from restrain_openrlhf.method.types import AdvantagePair, Floats, Votes

# Standard deviation of a 0/1 reward with c ones among n.
Std = Callable[[Floats, int], Floats]


def population_std(counts: Floats, n: int) -> Floats:
    """sqrt(f (1 − f)), shape (m,)."""
    shares = counts / n
    std: Floats = np.sqrt(shares * (1 - shares))
    return std


def unbiased_std(counts: Floats, n: int) -> Floats:
    """The population's times sqrt(n / (n − 1)), torch's default; shape (m,), and 0 where n is 1."""
    return population_std(counts, n) * (np.sqrt(n / (n - 1)) if n > 1 else 0.0)


def advantage_pair(votes: Votes, weights: Floats, std: Std, eps: float) -> AdvantagePair:
    """A⁺_i = w_y (1 − f_y) / s_y and A⁻_i = −sum_{j≠y} w_j f_j / s_j, y the label of rollout i (eq. 2 and 6).

    `weights` is w_j (m,). A unanimous label (std 0) has advantage 0; a missing answer has A⁺ = 0 and all labels in A⁻.
    """
    counts = np.array(votes.counts, dtype=np.float64)
    deviation = std(counts, votes.n)
    spread = deviation > 0
    scale = np.where(spread, weights / (np.where(spread, deviation, 1.0) + eps), 0.0)
    gain, loss = scale * (1 - votes.shares), scale * votes.shares
    labels, present = _labels(votes)
    positive = np.where(present, np.append(gain, 0.0)[labels], 0.0)
    others = _sum_of_others(loss)
    negative = np.where(present, np.append(others, 0.0)[labels], loss.sum())
    return AdvantagePair(positive, 0.0 - negative)


def _sum_of_others(values: Floats) -> Floats:
    """For each j the sum over l ≠ j. Adding up from both sides loses no small term, as total − value would."""
    before = np.concatenate([[0.0], np.cumsum(values)[:-1]]) if values.size else values
    after = np.concatenate([np.cumsum(values[::-1])[::-1][1:], [0.0]]) if values.size else values
    total: Floats = before + after
    return total


def expected_rewards(votes: Votes, weights: Floats) -> Floats:
    """sum_j w_j r_ij = w_y of each rollout's label, 0 for a missing answer; shape (n,)."""
    labels, present = _labels(votes)
    rewards: Floats = np.where(present, np.append(weights, 0.0)[labels], 0.0)
    return rewards


def _labels(votes: Votes) -> tuple[np.ndarray, np.ndarray]:
    """Each rollout's label and whether it has one, both (n,); a missing answer points past the last label."""
    present = np.array([label is not None for label in votes.classes], dtype=bool)
    labels = np.array([len(votes.counts) if label is None else label for label in votes.classes], dtype=int)
    return labels, present
