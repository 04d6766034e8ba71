"""Label weightings that need no formula of their own: all labels alike, the majority, or one label that is given.

A new weighting is one class here or beside its method, and one line in the method that offers it.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from restrain_openrlhf.errors import GroupError
from restrain_openrlhf.method.composition import LabelWeighting
from restrain_openrlhf.method.types import Floats, PromptFacts, Votes

Ties = Literal["first", "split"]


@dataclass(frozen=True)
class Uniform(LabelWeighting):
    """w_j = 1 / m: every label has the same weight."""

    def __call__(self, votes: Votes, facts: PromptFacts) -> Floats:
        return np.full(len(votes.counts), 1.0 / max(len(votes.counts), 1))


@dataclass(frozen=True)
class Majority(LabelWeighting):
    """All weight on the group's most common label, as in TTRL.

    Of tied labels the first wins, or all share the weight.
    """

    ties: Ties = "first"

    def __call__(self, votes: Votes, facts: PromptFacts) -> Floats:
        tied = [label for label, count in enumerate(votes.counts) if count == votes.majority_count]
        return _split_among(votes, tied if self.ties == "split" else tied[:1])


@dataclass(frozen=True)
class GoldLabel(LabelWeighting):
    """All weight on the gold label: the supervised upper bound."""

    reads = frozenset({"gold_class"})

    def __call__(self, votes: Votes, facts: PromptFacts) -> Floats:
        return _split_among(votes, _labels_of(votes, facts.gold_class))


@dataclass(frozen=True)
class StoredLabel(LabelWeighting):
    """All weight on the label that the offline pass stored (offline SRT)."""

    reads = frozenset({"reference", "stored_class"})

    def __call__(self, votes: Votes, facts: PromptFacts) -> Floats:
        return _split_among(votes, _labels_of(votes, facts.stored_class))


def _labels_of(votes: Votes, label: int | None) -> list[int]:
    """The label as a list, empty for None. Raises GroupError for a class that the group does not have."""
    if label is not None and not 0 <= label < len(votes.counts):
        raise GroupError(
            f"The pseudo-label is class {label}, but the group has only classes 0 to {len(votes.counts) - 1}. Give "
            "None if no rollout has that answer."
        )
    return [] if label is None else [label]


def _split_among(votes: Votes, labels: list[int]) -> Floats:
    return np.array([float(label in labels) for label in range(len(votes.counts))]) / max(len(labels), 1)
