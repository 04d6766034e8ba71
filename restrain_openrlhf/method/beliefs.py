"""Who is believed: each belief gives every label of a group a weight w_j.

Weights sum to 1, or are all 0 where the believed label is not among the group's; all advantages are then 0.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from restrain_openrlhf.errors import GroupError, ReferencePassError
from restrain_openrlhf.method.shaping import Shaping
from restrain_openrlhf.method.types import Floats, PromptFacts, Votes


class Belief(Protocol):
    """Label weights (m,) of a group; `reads_gold` and `needs_reference` say which facts it looks at."""

    @property
    def reads_gold(self) -> bool: ...

    @property
    def needs_reference(self) -> bool: ...

    def __call__(self, votes: Votes, facts: PromptFacts) -> Floats: ...


@dataclass(frozen=True)
class Soft:
    """w_j = g(f_j) / sum_l g(f_l) (eq. 3): every label, by how common it is."""

    shaping: Shaping
    reads_gold: bool = False
    needs_reference: bool = False

    def __call__(self, votes: Votes, facts: PromptFacts) -> Floats:
        return self.shaping.normalized(votes.shares)


@dataclass(frozen=True)
class Uniform:
    """Every label alike: w_j = 1 / m."""

    reads_gold: bool = False
    needs_reference: bool = False

    def __call__(self, votes: Votes, facts: PromptFacts) -> Floats:
        return np.full(len(votes.counts), 1.0 / max(len(votes.counts), 1))


@dataclass(frozen=True)
class Majority:
    """The most common label of the group, as TTRL has it; tied labels share or the first to appear wins."""

    share_ties: bool = False
    reads_gold: bool = False
    needs_reference: bool = False

    def __call__(self, votes: Votes, facts: PromptFacts) -> Floats:
        tied = np.flatnonzero(np.array(votes.counts) == votes.majority_count)
        return _on(votes, tied if self.share_ties else tied[:1])


@dataclass(frozen=True)
class Gold:
    """The gold label: the supervised upper bound, and the only belief that reads gold."""

    reads_gold: bool = True
    needs_reference: bool = False

    def __call__(self, votes: Votes, facts: PromptFacts) -> Floats:
        return _on(votes, _within(votes, facts.gold_class))


@dataclass(frozen=True)
class Stored:
    """The label stored by the offline pass (SRT, offline).

    Raises ReferencePassError where the prompt has no stored vote.
    """

    reads_gold: bool = False
    needs_reference: bool = True

    def __call__(self, votes: Votes, facts: PromptFacts) -> Floats:
        if facts.reference is None:
            raise ReferencePassError(
                "This method trains on labels stored by the offline pass, and the prompt has none. Make a reference "
                "with `restrain reference`."
            )
        return _on(votes, _within(votes, facts.stored_class))


def _within(votes: Votes, label: int | None) -> np.ndarray:
    """The label as an index array, empty for None. Raises GroupError for a class the group does not have."""
    if label is not None and not 0 <= label < len(votes.counts):
        raise GroupError(
            f"The believed class {label} is not among the group's {len(votes.counts)}. Give None for an absent one."
        )
    return np.array([] if label is None else [label], dtype=int)


def _on(votes: Votes, labels: np.ndarray) -> Floats:
    weights = np.zeros(len(votes.counts))
    weights[labels] = 1.0 / max(len(labels), 1)
    return weights
