"""From votes to advantages: by labels that are each believed a little, or by one reward for each rollout.

The advantages of labels are computed in closed form: O(n + m), never an n × m matrix.
"""

import numpy as np

from restrain_openrlhf.errors import GroupError
from restrain_openrlhf.method.types import AdvantagePair, Floats, GroupScore, Votes


def uniform(votes: Votes) -> Floats:
    """w_j = 1 / m: every label has the same weight; shape (m,)."""
    return np.full(len(votes.counts), 1.0 / max(len(votes.counts), 1))


def majority(votes: Votes, shared: bool = False) -> Floats:
    """All weight on the most common label, of tied ones on the first, or `shared` among them; shape (m,)."""
    tied = [label for label, count in enumerate(votes.counts) if count == votes.majority_count]
    return _split_among(votes, tied if shared else tied[:1])


def one_label(votes: Votes, label: int | None) -> Floats:
    """All weight on one label, (m,), and all 0 for None, which no rollout gave.

    Raises GroupError for a label that the group does not have.
    """
    if label is not None and not 0 <= label < len(votes.counts):
        raise GroupError(
            f"The pseudo-label is class {label}, but the group has only classes 0 to {len(votes.counts) - 1}. Give "
            "None if no rollout has that answer."
        )
    return _split_among(votes, [] if label is None else [label])


def _split_among(votes: Votes, labels: list[int]) -> Floats:
    return np.array([float(label in labels) for label in range(len(votes.counts))]) / max(len(labels), 1)


def of_labels(votes: Votes, weights: Floats, ddof: int, eps: float) -> GroupScore:
    """Σ_j w_j A_ij of the trained rollouts, A_ij standardised as if label j were right; `weights` is w_j (m,)."""
    pair = advantage_pair(votes.trained, weights, ddof, eps)
    return GroupScore(votes, weights, pair, by_label(votes, weights))


def of_rewards(votes: Votes, per_label: Floats, own: Floats | float, ddof: int, eps: float) -> GroupScore:
    """A_i = (r_i − mean) / (std + ε) of the trained rollouts, and 0 where all rewards are equal (GRPO).

    r_i is `per_label` (m,) of the rollout's answer, 0 for a missing one, plus the rollout's `own` reward (n,).
    """
    rewards = by_label(votes, per_label) + own
    if np.ptp(rewards) == 0:
        net = np.zeros_like(rewards)
    else:
        net = (rewards - rewards.mean()) / (rewards.std(ddof=ddof) + eps)
    return GroupScore(votes, per_label, AdvantagePair.of(net), rewards)


def penalty(votes: Votes, weights: Floats, delta: float) -> GroupScore:
    """A⁻_i = −δ, A⁺_i = 0 and reward 0 for all trained rollouts; the weights (m,) of labels are kept, for display."""
    zeros = np.zeros(votes.trained.n)
    return GroupScore(votes, weights, AdvantagePair(zeros, zeros - delta), zeros, penalized=1.0)


def advantage_pair(votes: Votes, weights: Floats, ddof: int, eps: float) -> AdvantagePair:
    """A⁺_i = w_y (1 − f_y) / s_y and A⁻_i = −sum_{j≠y} w_j f_j / s_j, y the label of rollout i (eq. 2 and 6).

    `weights` is w_j (m,), and s_j the std of a 0/1 reward, with the divisor n − `ddof`. A unanimous label (std 0) has
    advantage 0; a missing answer has A⁺ = 0 and all labels in A⁻.
    """
    std = deviation(votes.shares, votes.n, ddof)
    spread = std > 0
    scale = np.where(spread, weights / (np.where(spread, std, 1.0) + eps), 0.0)
    gain, loss = scale * (1 - votes.shares), scale * votes.shares
    positive = by_label(votes, gain)
    negative = by_label(votes, _sum_of_others(loss), missing=loss.sum())
    return AdvantagePair(positive, 0.0 - negative)


def deviation(shares: Floats, n: int, ddof: int) -> Floats:
    """sqrt(f (1 − f)) · sqrt(n / (n − ddof)) of shares f of ones among n rewards, elementwise; 0 where n is ddof."""
    std: Floats = np.sqrt(shares * (1 - shares)) * (np.sqrt(n / (n - ddof)) if n > ddof else 0.0)
    return std


def _sum_of_others(values: Floats) -> Floats:
    """For each j the sum over l ≠ j. Adding up from both sides loses no small term, as total − value would."""
    before = np.concatenate([[0.0], np.cumsum(values)[:-1]]) if values.size else values
    after = np.concatenate([np.cumsum(values[::-1])[::-1][1:], [0.0]]) if values.size else values
    total: Floats = before + after
    return total


def by_label(votes: Votes, values: Floats, missing: float = 0.0) -> Floats:
    """For each trained rollout its label's value, of `values` (m,), or `missing` without an answer; shape (n,)."""
    labels = [len(votes.counts) if label is None else label for label in votes.trained.classes]
    found: Floats = np.append(values, missing)[labels]
    return found
