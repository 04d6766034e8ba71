"""The data that flows through a method: votes, facts about the prompt, advantage pairs, scores."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from restrain_openrlhf.errors import GroupError, ReferencePassError

Floats = NDArray[np.float64]
# One entry per rollout: the number of its class of equal answers, None for a missing answer.
Classes = Sequence[int | None]


@dataclass(frozen=True)
class Votes:
    """One group's answers as classes.

    `classes[i]` is the label of rollout i, None if the rollout has no answer, and `counts[j]` is c_j. The first
    `train_on` rollouts are trained on; None: all.
    """

    classes: tuple[int | None, ...]
    counts: tuple[int, ...]
    train_on: int | None = None

    @property
    def n(self) -> int:
        """Rollouts in the group, missing answers included."""
        return len(self.classes)

    @property
    def majority_count(self) -> int:
        """M = max_j c_j; 0 where no rollout has an answer."""
        return max(self.counts, default=0)

    @property
    def majority(self) -> int:
        """The first label with the most votes. Raises ValueError if no rollout has an answer."""
        return self.counts.index(max(self.counts))

    @cached_property
    def shares(self) -> Floats:
        """f_j = c_j / n, shape (m,)."""
        return np.array(self.counts, dtype=np.float64) / self.n

    @property
    def effective_labels(self) -> float:
        """exp of the entropy of the labels' shares: m where all are equally common, 0 where no rollout answered."""
        if not self.counts:
            return 0.0
        p = np.array([count for count in self.counts if count]) / sum(self.counts)
        return float(np.exp(-np.sum(p * np.log(p))))

    @cached_property
    def trained(self) -> "Votes":
        """The rollouts that are trained on, with the labels of the whole group, so that a count may be 0."""
        counts = Counter(self.classes[: self.train_on])
        return Votes(self.classes[: self.train_on], tuple(counts[label] for label in range(len(self.counts))))


def count_votes(classes: Classes) -> Votes:
    """Counts the votes of n rollouts. Labels are 0 to m − 1; a missing answer (None) is no label, but counts in n.

    Raises GroupError for a group without rollouts, and where a number from 0 to m − 1 is not used.
    """
    if not classes:
        raise GroupError("A group has no rollouts, so there is nothing to vote on. Leave the prompt out.")
    counts = Counter(label for label in classes if label is not None)
    if set(counts) != set(range(len(counts))):
        raise GroupError(
            f"The group's classes are {sorted(counts)}; they must be numbered 0 to {len(counts) - 1} without gaps. "
            "Number them with restrain_openrlhf.answers.classes."
        )
    return Votes(tuple(classes), tuple(counts[label] for label in range(len(counts))))


@dataclass(frozen=True)
class ReferenceVote:
    """The frozen model's vote on a prompt: its majority has c_ref of n_ref rollouts.

    Raises ReferencePassError if the majority is not between 0 and n_ref, or n_ref is 0.
    """

    majority_count: int
    n: int

    def __post_init__(self) -> None:
        if not 0 <= self.majority_count <= self.n or self.n == 0:
            raise ReferencePassError(
                f"The frozen model's vote is {self.majority_count} of {self.n} rollouts, which is impossible. Make "
                "the reference again with `restrain reference`."
            )

    @property
    def share(self) -> float:
        """c_ref / n_ref."""
        return self.majority_count / self.n


# Takes the frozen model's majority share of every prompt, and returns the positions of the prompts to train on,
# ascending.
Selection = Callable[[Sequence[float]], list[int]]
# A method, from a group's votes to the score of its trained rollouts.
Score = Callable[[Votes, "PromptFacts"], "GroupScore"]
# Names of PromptFacts' fields: what a method reads of a prompt besides its votes.
Facts = frozenset[Literal["reference", "stored_class", "gold_class", "entropies", "history"]]


@dataclass(frozen=True)
class PastVote:
    """A prompt's vote in an earlier step: its M / n, and whether its majority was another than the one before."""

    share: float
    flipped: bool


@dataclass(frozen=True)
class History:
    """A prompt's votes in earlier steps of the run, oldest first.

    `last_class` is the class in this group of the last majority; None where no rollout gave it, or there was none.
    """

    votes: tuple[PastVote, ...] = ()
    last_class: int | None = None

    def is_flipped_by(self, votes: Votes) -> bool:
        """Whether this group's majority is another than the last. Without an answer, it is equal to no answer."""
        if not self.votes:
            return False
        return votes.majority != self.last_class if votes.counts else self.votes[-1].share > 0


@dataclass(frozen=True)
class PromptFacts:
    """What is known of a prompt besides the votes. Classes are numbers of classes of this group.

    `entropies` holds H_i, the mean token entropy of each rollout in nats, where the rollouts were drawn with entropies.
    `has_gold` says whether the prompt has a gold answer; `gold_class` is None where no rollout gave it. Only a training
    run has a history; everywhere else, a group is that of the prompt's first step.
    """

    reference: ReferenceVote | None = None
    stored_class: int | None = None
    gold_class: int | None = None
    entropies: tuple[float, ...] | None = None
    has_gold: bool = False
    history: History = History()

    def only(self, names: Facts) -> "PromptFacts":
        """The facts of these names; nothing is said of all others."""
        return PromptFacts(**{name: getattr(self, name) for name in names})

    def entropies_of(self, votes: Votes) -> Floats:
        """H_i of the trained rollouts, (n,). Raises GroupError if there are none, or one that is not finite."""
        if self.entropies is None or len(self.entropies) != votes.trained.n:
            found = "none" if self.entropies is None else len(self.entropies)
            raise GroupError(
                f"The method needs the mean token entropy of each of {votes.trained.n} rollouts, but found {found}. "
                "Draw the rollouts with this method, or give their `entropies`."
            )
        entropies = np.array(self.entropies, dtype=np.float64)
        if not np.isfinite(entropies).all():
            raise GroupError(
                f"The mean token entropies of the rollouts are {self.entropies}, but all must be finite. The sampled "
                "log-probabilities are broken: look at the log of vLLM, and start again from the last good checkpoint."
            )
        return entropies


@dataclass(frozen=True)
class AdvantagePair:
    """A⁺ and A⁻ of every rollout, each (n,): together they carry the m-label loss exactly (docs/concepts/method.md)."""

    positive: Floats
    negative: Floats

    @classmethod
    def of(cls, net: Floats) -> "AdvantagePair":
        """The pair of a single advantage for each rollout, (n,)."""
        return cls(np.maximum(net, 0.0), np.minimum(net, 0.0))

    @property
    def net(self) -> Floats:
        """A⁺ + A⁻: the right advantage only while no ratio is clipped."""
        return self.positive + self.negative

    def times(self, factors: float | Floats) -> "AdvantagePair":
        """All advantages times one factor, or each rollout's times its own (n,). A negative factor swaps A⁺ and A⁻."""
        one, other, swapped = self.positive * factors, self.negative * factors, np.less(factors, 0)
        return AdvantagePair(np.where(swapped, other, one), np.where(swapped, one, other))


@dataclass(frozen=True)
class GroupScore:
    """A method's result for one group. All rollouts vote, and the first n of them are trained on; mostly, n is all.

    `label_weights` is w_j (m,), or the reward of each label's rollouts, and `rewards` the expected reward of each
    trained rollout (n,). `penalized` is the share of trained rollouts that the method penalises, missing answers aside.
    `prompt_weight` is u_x, by which the pair is already multiplied, but for a penalised missing answer's; `kl_weight`
    is the factor of this prompt's KL term.

    The method knows only classes, so the scorer adds the rest: the `answers` of all rollouts, the key of each label's
    answer (m,), the key of the majority's answer, and whether it is another than in the prompt's step before.
    """

    votes: Votes
    label_weights: Floats
    pair: AdvantagePair
    rewards: Floats
    penalized: float = 0.0
    prompt_weight: float = 1.0
    kl_weight: float = 1.0
    answers: tuple[str | None, ...] = ()
    keys: tuple[str, ...] = ()
    majority_key: str | None = None
    flipped: bool = False
