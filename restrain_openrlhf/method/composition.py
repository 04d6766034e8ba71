"""A method as a composition: what each label weighs, the advantage pair that follows, and what transforms make of it.

A new weighting is one class here or beside its method, and one line in the method that offers it. The pair is computed
in closed form: O(n + m), never an n × m matrix.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from restrain_openrlhf.errors import GroupError, ReferencePassError
from restrain_openrlhf.method.rollout_plans import RolloutPlan
from restrain_openrlhf.method.types import (
    AdvantagePair,
    Classes,
    Facts,
    Floats,
    GroupScore,
    PromptFacts,
    Votes,
    count_votes,
)

NO_FACTS = PromptFacts()
# Takes the frozen model's majority share of every prompt, and returns the positions of the prompts to train on,
# ascending.
Selection = Callable[[Sequence[float]], list[int]]
Ties = Literal["first", "split"]
# Standard deviation of a 0/1 reward with c ones among n.
Std = Callable[[Floats, int], Floats]


class MethodPart:
    """A part of a method. It receives only the facts that it says it reads."""

    @property
    def reads(self) -> Facts:
        """Names of the facts that this part reads; none unless the part says otherwise."""
        return frozenset()


class LabelWeighting(MethodPart, ABC):
    """Turns a group's votes into label weights, shape (m,). They sum to 1, or are all 0 where no label is believed."""

    @abstractmethod
    def __call__(self, votes: Votes, facts: PromptFacts) -> Floats: ...


class Transform(MethodPart, ABC):
    """Turns a group's score into another one, after the label weights have given the advantages."""

    @abstractmethod
    def __call__(self, score: GroupScore, facts: PromptFacts) -> GroupScore: ...


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


@dataclass(frozen=True)
class Method:
    """A label weighting, and the transforms that follow it in order.

    `rollouts` is None if the host draws independent rollouts, as many as its flags say. `selection` is None if
    every prompt is trained on.
    """

    name: str
    label_weighting: LabelWeighting
    transforms: tuple[Transform, ...] = ()
    std: Std = unbiased_std
    eps: float = 1e-6
    rollouts: RolloutPlan | None = None
    selection: Selection | None = None

    @property
    def reads(self) -> Facts:
        """The facts that its parts read."""
        return frozenset().union(*(part.reads for part in (self.label_weighting, *self.transforms)))

    @property
    def reads_gold(self) -> bool:
        """Whether any part reads the gold answer."""
        return "gold_class" in self.reads

    @property
    def needs_reference(self) -> bool:
        """Whether prompts are selected by the offline pass of the frozen model, or any part reads it."""
        return self.selection is not None or "reference" in self.reads

    def score(self, classes: Classes, facts: PromptFacts = NO_FACTS) -> GroupScore:
        """The score of one group; `classes` has one label per voting rollout, None for a missing answer.

        Raises GroupError if the group has another size than the method draws, ReferencePassError where the prompt
        lacks the frozen model's vote that a part reads.
        """
        votes = count_votes(classes)
        weights = self.label_weighting(votes, self._facts_for(self.label_weighting, facts))
        trained = votes.first(self._trained(votes.n))
        pair = advantage_pair(trained, weights, self.std, self.eps)
        score = GroupScore(votes, weights, pair, expected_rewards(trained, weights))
        for transform in self.transforms:
            score = transform(score, self._facts_for(transform, facts))
        return score

    def _facts_for(self, part: MethodPart, facts: PromptFacts) -> PromptFacts:
        """The facts that the part reads.

        Raises ReferencePassError if it reads the frozen model's vote and finds none.
        """
        if "reference" in part.reads and facts.reference is None:
            raise ReferencePassError(
                f"The method {self.name!r} reads the frozen model's vote, but there is none for this prompt. Make a "
                "reference with `restrain reference`. RESTRAIN needs none with prompt_weight: none, online or a "
                "number."
            )
        return facts.only(part.reads)

    def _trained(self, found: int) -> int:
        if self.rollouts is None:
            return found
        if found != self.rollouts.voters:
            raise GroupError(
                f"The group has {found} rollouts, but the method {self.name!r} votes on {self.rollouts.voters}. Give "
                "groups of that size, or change the method's settings."
            )
        return self.rollouts.trained
