"""The data that flows through a method: votes, facts about the prompt, advantage pairs, scores."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from restrain_openrlhf.errors import ReferencePassError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Votes:
    """One group's answers as classes: `classes[i]` is rollout i's label (None: missing), `counts[j]` is c_j.

    A count may be 0 in a part of a group.
    """

    classes: tuple[int | None, ...]
    counts: tuple[int, ...]

    @property
    def n(self) -> int:
        """Rollouts in the group, missing answers included."""
        return len(self.classes)

    @property
    def majority_count(self) -> int:
        """M = max_j c_j; 0 where no rollout has an answer."""
        return max(self.counts, default=0)

    @property
    def missing_count(self) -> int:
        """Rollouts that count for no label."""
        return self.classes.count(None)

    @cached_property
    def shares(self) -> Floats:
        """f_j = c_j / n, shape (m,)."""
        return np.array(self.counts, dtype=np.float64) / self.n

    @property
    def effective_labels(self) -> float:
        """Exponential of the entropy of the labels' shares among the answers given: m if all are alike, 0 if none."""
        if not self.counts:
            return 0.0
        p = np.array([count for count in self.counts if count]) / sum(self.counts)
        return float(np.exp(-np.sum(p * np.log(p))))

    def first(self, n: int) -> "Votes":
        """The first n rollouts, with the labels of the whole group."""
        counts = Counter(self.classes[:n])
        return Votes(self.classes[:n], tuple(counts[label] for label in range(len(self.counts))))


@dataclass(frozen=True)
class ReferenceVote:
    """The frozen model's vote on a prompt: c_ref of n_ref rollouts.

    Raises ReferencePassError for numbers that are no vote.
    """

    majority_count: int
    n: int

    def __post_init__(self) -> None:
        if not 0 <= self.majority_count <= self.n or self.n == 0:
            raise ReferencePassError(
                f"The frozen model's vote is {self.majority_count} of {self.n} rollouts, which is no vote. Make the "
                "reference again with `restrain reference`."
            )

    @property
    def share(self) -> float:
        """c_ref / n_ref."""
        return self.majority_count / self.n


@dataclass(frozen=True)
class PromptFacts:
    """What a method may be told about a prompt besides its rollouts; classes are those of the group at hand.

    `entropies` is H_i, the mean token entropy of each rollout in nats, where the rollouts were drawn with it.
    """

    reference: ReferenceVote | None = None
    stored_class: int | None = None
    gold_class: int | None = None
    entropies: tuple[float, ...] | None = None


@dataclass(frozen=True)
class AdvantagePair:
    """A⁺ and A⁻ of every rollout, each (n,): together they carry the m-label loss exactly (docs/concepts/method.md)."""

    positive: Floats
    negative: Floats

    @property
    def net(self) -> Floats:
        """A⁺ + A⁻: the right advantage only while no ratio is clipped."""
        return self.positive + self.negative

    def scaled(self, factor: float) -> "AdvantagePair":
        """Both parts times a non-negative factor."""
        return AdvantagePair(self.positive * factor, self.negative * factor)

    def times(self, factors: Floats) -> "AdvantagePair":
        """Each rollout's advantages times its factor, (n,); a negative one turns A⁺ into A⁻ and back."""
        one, other = self.positive * factors, self.negative * factors
        return AdvantagePair(np.where(factors < 0, other, one), np.where(factors < 0, one, other))

    def clipped(self, bound: float) -> "AdvantagePair":
        """Both parts clipped to ±bound: with a single believed label exactly clip(A, −bound, bound)."""
        return AdvantagePair(np.minimum(self.positive, bound), np.maximum(self.negative, -bound))


@dataclass(frozen=True)
class GroupScore:
    """What a method says of one group. All rollouts vote; the first n of them are trained on (mostly all).

    `label_weights` is w_j (m,), `rewards` the expected reward of each trained rollout (n,), `prompt_weight` u_x
    (already in the pair), `kl_weight` what the KL term of this prompt is multiplied by.
    """

    votes: Votes
    label_weights: Floats
    pair: AdvantagePair
    rewards: Floats
    penalized: bool = False
    prompt_weight: float = 1.0
    kl_weight: float = 1.0
