"""What is done to a group's score after the belief: penalties and prompt weights."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from restrain_openrlhf.errors import ReferencePassError
from restrain_openrlhf.method.shaping import Shaping
from restrain_openrlhf.method.types import AdvantagePair, GroupScore, PromptFacts


class Transform(Protocol):
    """From one group's score to another; `needs_reference` says whether it reads the offline pass."""

    @property
    def needs_reference(self) -> bool: ...

    def __call__(self, score: GroupScore, facts: PromptFacts) -> GroupScore: ...


@dataclass(frozen=True)
class PenalizeLowConsensus:
    """Where M < κ, every rollout has A = −δ and reward 0 (eq. 4). κ is a count, or a share of n if below 1."""

    kappa: float
    delta: float
    needs_reference: bool = False

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
class PenalizeMissing:
    """A rollout without an answer has A = −δ instead of its share of the labels' negative advantages."""

    delta: float
    needs_reference: bool = False

    def __call__(self, score: GroupScore, facts: PromptFacts) -> GroupScore:
        missing = np.array([label is None for label in score.votes.classes[: score.rewards.size]])
        positive = np.where(missing, 0.0, score.pair.positive)
        negative = np.where(missing, -self.delta, score.pair.negative)
        return replace(score, pair=AdvantagePair(positive, negative))


Weigh = Callable[[GroupScore, PromptFacts], float]


@dataclass(frozen=True)
class ScaleByPromptWeight:
    """Multiply the pair by u_x (eq. 5 and 6), and the prompt's KL term too unless `scale_kl` is off."""

    weigh: Weigh
    scale_kl: bool = True
    needs_reference: bool = False

    def __call__(self, score: GroupScore, facts: PromptFacts) -> GroupScore:
        weight = self.weigh(score, facts)
        return replace(
            score,
            pair=score.pair.scaled(weight),
            prompt_weight=weight,
            kl_weight=weight if self.scale_kl else 1.0,
        )


def offline(shaping: Shaping) -> Weigh:
    """u_x = g(c_ref / n_ref) of the frozen model's vote. Raises ReferencePassError where there is none."""

    def weigh(_score: GroupScore, facts: PromptFacts) -> float:
        if facts.reference is None:
            raise ReferencePassError(
                "The prompt weight u_x needs the frozen model's vote, and this prompt has none. Make a reference with "
                "`restrain reference`, or set prompt_weight to none, online or a number."
            )
        return shaping(facts.reference.share)

    return weigh


def online(shaping: Shaping) -> Weigh:
    """u_x = g(M / n) of the group itself: the ablation that follows the policy instead of the frozen model."""
    return lambda score, _facts: shaping(score.votes.majority_count / score.votes.n)


def constant(weight: float) -> Weigh:
    """The same u_x for every prompt."""
    return lambda _score, _facts: weight
