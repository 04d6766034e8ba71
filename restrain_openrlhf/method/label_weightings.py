"""Label weightings: each distinct answer of a group is a pseudo-label, and a weighting gives every one its weight w_j.

Weights sum to 1, or are all 0 where the pseudo-label is not among the group's answers; all advantages are then 0.
A new weighting is one class in this file and one line in the method that offers it (docs/concepts/method.md).
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np

from restrain_openrlhf.errors import GroupError, ReferencePassError
from restrain_openrlhf.method.types import NOTHING, Fact, Floats, Part, PromptFacts, Votes

Ties = Literal["first", "split"]


class LabelWeighting(Part):
    """From a group's votes to its label weights, shape (m,)."""

    @abstractmethod
    def __call__(self, votes: Votes, facts: PromptFacts) -> Floats: ...


@dataclass(frozen=True)
class Shaping:
    """g(f) = exp(−(f − k)² / (2 σ²)) of a vote share f; σ = 0 and σ = ∞ are the exact limits."""

    k: float = 1.0
    sigma: float = 0.5

    def __call__(self, share: float) -> float:
        """g(f) of one share, in [0, 1]; at σ = 0 it is 1 for f = k and 0 elsewhere."""
        distance = (share - self.k) ** 2
        if self.sigma == 0:
            return float(distance == 0)
        return math.exp(-(distance / self.sigma) / self.sigma / 2)

    def normalized(self, shares: Floats) -> Floats:
        """g(f_j) / sum_l g(f_l), shape (m,). In logarithms: a small σ must not divide 0 by 0.

        As σ → 0 the label nearest to k has all the weight (equally near ones share it), as σ → ∞ all are equal.
        """
        if shares.size == 0:
            return np.zeros(0)
        distance = (shares - self.k) ** 2
        excess = distance - distance.min()
        if self.sigma == 0:
            weights = (excess == 0).astype(np.float64)
        else:
            # A tiny sigma squared would underflow to 0, so divide twice; what then overflows has weight 0.
            with np.errstate(over="ignore"):
                weights = np.exp(-(excess / self.sigma) / self.sigma / 2)
        normalized: Floats = weights / weights.sum()
        return normalized


@dataclass(frozen=True)
class Gaussian(LabelWeighting):
    """w_j = g(f_j) / sum_l g(f_l) (eq. 3): every label is weighted by its vote share."""

    shaping: Shaping
    reads = NOTHING

    def __call__(self, votes: Votes, facts: PromptFacts) -> Floats:
        return self.shaping.normalized(votes.shares)


@dataclass(frozen=True)
class Uniform(LabelWeighting):
    """w_j = 1 / m: every label has the same weight."""

    reads = NOTHING

    def __call__(self, votes: Votes, facts: PromptFacts) -> Floats:
        return np.full(len(votes.counts), 1.0 / max(len(votes.counts), 1))


@dataclass(frozen=True)
class Majority(LabelWeighting):
    """The most common label of the group, as in TTRL. Of tied labels the first to appear wins, or they split it."""

    ties: Ties = "first"
    reads = NOTHING

    def __call__(self, votes: Votes, facts: PromptFacts) -> Floats:
        tied = [label for label, count in enumerate(votes.counts) if count == votes.majority_count]
        return _split_among(votes, tied if self.ties == "split" else tied[:1])


@dataclass(frozen=True)
class Gold(LabelWeighting):
    """The gold label: the supervised upper bound."""

    reads = frozenset({Fact.GOLD})

    def __call__(self, votes: Votes, facts: PromptFacts) -> Floats:
        return _split_among(votes, _known(votes, facts.gold_class))


@dataclass(frozen=True)
class Stored(LabelWeighting):
    """The label stored by the offline pass (SRT, offline).

    Raises ReferencePassError where the prompt has no stored vote.
    """

    reads = frozenset({Fact.REFERENCE})

    def __call__(self, votes: Votes, facts: PromptFacts) -> Floats:
        if facts.reference is None:
            raise ReferencePassError(
                "This method trains on labels stored by the offline pass, and the prompt has none. Make a reference "
                "with `restrain reference`."
            )
        return _split_among(votes, _known(votes, facts.stored_class))


def _known(votes: Votes, label: int | None) -> list[int]:
    """The label, or nothing for None. Raises GroupError for a class the group does not have."""
    if label is not None and not 0 <= label < len(votes.counts):
        raise GroupError(
            f"The pseudo-label is class {label}, and the group has classes 0 to {len(votes.counts) - 1}. Give None "
            "where no rollout has that answer."
        )
    return [] if label is None else [label]


def _split_among(votes: Votes, labels: list[int]) -> Floats:
    return np.array([float(label in labels) for label in range(len(votes.counts))]) / max(len(labels), 1)
