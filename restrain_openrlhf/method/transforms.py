"""Transforms: what changes a group's advantages after the label weights, such as penalties and reshaping by entropy."""

from abc import abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from restrain_openrlhf.errors import GroupError
from restrain_openrlhf.method.types import NOTHING, AdvantagePair, Fact, GroupScore, Part, PromptFacts


class Transform(Part):
    """From one group's score to another."""

    @abstractmethod
    def __call__(self, score: GroupScore, facts: PromptFacts) -> GroupScore: ...


@dataclass(frozen=True)
class PenalizeLowConsensus(Transform):
    """Where M < κ, every rollout has A = −δ and reward 0 (eq. 4). κ is a count, or a share of n if below 1."""

    kappa: float
    delta: float
    reads = NOTHING

    def __call__(self, score: GroupScore, facts: PromptFacts) -> GroupScore:
        votes = score.votes
        # M / n, not κ · n: .07 · 100 rounds above 7, and would penalise a group that stands exactly at κ.
        majority = votes.majority_count / votes.n if self.kappa < 1 else votes.majority_count
        if majority >= self.kappa:
            return score
        nothing = np.zeros_like(score.rewards)
        pair = AdvantagePair(nothing, np.full_like(score.rewards, -self.delta))
        return replace(score, pair=pair, rewards=nothing, penalized=True)


@dataclass(frozen=True)
class PenalizeMissing(Transform):
    """A rollout without an answer has A = −δ instead of the negative advantage of every label."""

    delta: float
    reads = NOTHING

    def __call__(self, score: GroupScore, facts: PromptFacts) -> GroupScore:
        missing = np.array([label is None for label in score.votes.classes[: score.rewards.size]])
        positive = np.where(missing, 0.0, score.pair.positive)
        negative = np.where(missing, -self.delta, score.pair.negative)
        return replace(score, pair=AdvantagePair(positive, negative))


@dataclass(frozen=True)
class ClipAdvantages(Transform):
    """clip(A, −bound, bound), one of ETTRL's two ways to reshape advantages."""

    bound: float
    reads = NOTHING

    def __call__(self, score: GroupScore, facts: PromptFacts) -> GroupScore:
        return replace(score, pair=score.pair.clipped(self.bound))


@dataclass(frozen=True)
class ResidualEntropy(Transform):
    """A'_i = A_i (1 + (H̄ − H_i) / H̄), H_i the rollout's mean token entropy and H̄ the group's mean of it (ETTRL).

    With H_i > 2 H̄ the advantage changes sign, as the formula says. Raises GroupError where the rollouts have no
    entropies.
    """

    reads = frozenset({Fact.ENTROPIES})

    def __call__(self, score: GroupScore, facts: PromptFacts) -> GroupScore:
        if facts.entropies is None or len(facts.entropies) != score.rewards.size:
            found = "none" if facts.entropies is None else len(facts.entropies)
            raise GroupError(
                f"Entropy-based reshaping needs the mean token entropy of each of {score.rewards.size} rollouts, and "
                f"found {found}. Draw the rollouts with this method, or give their `entropies`."
            )
        entropies = np.array(facts.entropies, dtype=np.float64)
        mean = entropies.mean()
        factors = 1 + (mean - entropies) / mean if mean > 0 else np.ones_like(entropies)
        return replace(score, pair=score.pair.times(factors))
