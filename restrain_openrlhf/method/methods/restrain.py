"""RESTRAIN (https://arxiv.org/abs/2510.02172): equations 3 to 5, their settings, and the method that they form.

The n rollouts of a prompt have m distinct answers, which are its labels: c_j rollouts gave label j, f_j = c_j / n, and
M = max_j c_j. Of n_ref rollouts of the frozen model, c_ref gave that model's majority answer. A⁺ and A⁻ are in
composition.py (eq. 2 and 6).
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from pydantic import Field, StrictBool, model_validator

from restrain_openrlhf.method.composition import LabelWeighting, Majority, Method, Ties, Transform, Uniform
from restrain_openrlhf.method.settings import Amount, CommonSettings, Number, register
from restrain_openrlhf.method.types import AdvantagePair, Facts, Floats, GroupScore, PromptFacts, Votes


def log_g(squares: Floats, sigma: float) -> Floats:
    """log g = −d² / 2σ², elementwise, of the squares d² = (f − k)². σ = 0 and σ = ∞ give the exact limits."""
    if sigma == 0:
        return np.where(squares == 0, 0.0, -np.inf)
    # The square of a tiny σ would underflow to 0, so divide by σ twice. A quotient that overflows means weight 0.
    with np.errstate(over="ignore"):
        return -(squares / sigma) / sigma / 2


@dataclass(frozen=True)
class Gaussian(LabelWeighting):
    """w_j = g(f_j) / Σ_l g(f_l), with g(f) = exp(−(f − k)² / 2σ²): shares (m,) to weights (m,) (eq. 3)."""

    k: float = 1.0
    sigma: float = 0.5

    def __call__(self, votes: Votes, facts: PromptFacts) -> Floats:
        # c − k · n is exact for k = 1/2, where two shares may be equally far from k; f − k would round.
        squares = ((np.array(votes.counts, dtype=np.float64) - self.k * votes.n) / votes.n) ** 2
        # A factor common to all g cancels out. Without dividing by the largest, a small σ would make every g 0.
        g = np.exp(log_g(squares - squares.min(initial=np.inf), self.sigma))
        weights: Floats = g / g.sum()
        return weights


@dataclass(frozen=True)
class PenalizeLowConsensus(Transform):
    """Where M < κ: A⁻_i = −δ, A⁺_i = 0 and reward 0 for all i, (n,) (eq. 4). κ is a count, or a share of n below 1."""

    kappa: float
    delta: float

    def __call__(self, score: GroupScore, facts: PromptFacts) -> GroupScore:
        votes, zeros = score.votes, np.zeros_like(score.rewards)
        # Compare M / n with κ: 0.07 · 100 rounds above 7, so that a group exactly at κ would be penalised.
        majority = votes.majority_count / votes.n if self.kappa < 1 else votes.majority_count
        if majority >= self.kappa:
            return score
        return replace(score, pair=AdvantagePair(zeros, zeros - self.delta), rewards=zeros, penalized=True)


@dataclass(frozen=True)
class WeighPrompt(Transform):
    """Multiplies A⁺, A⁻ and KL by u_x (eq. 5): g(c_ref / n_ref) offline, g(M / n) online, or a given number."""

    weight: Literal["offline", "online"] | float
    k: float = 1.0
    sigma: float = 0.5
    scale_kl: bool = True

    @property
    def reads(self) -> Facts:
        return frozenset({"reference"} if self.weight == "offline" else ())

    def __call__(self, score: GroupScore, facts: PromptFacts) -> GroupScore:
        share = facts.reference.share if facts.reference else score.votes.majority_count / score.votes.n
        g = math.exp(log_g(np.array((share - self.k) ** 2), self.sigma))
        u_x = g if isinstance(self.weight, str) else self.weight
        return replace(score, pair=score.pair.times(u_x), prompt_weight=u_x, kl_weight=u_x if self.scale_kl else 1.0)


@register
class Restrain(CommonSettings):
    """The paper's method: sigma and k are those of eq. 3, kappa and delta of eq. 4, the prompt weight of eq. 5."""

    name: Literal["restrain"] = "restrain"
    label_weights: Literal["gaussian", "majority", "uniform"] = "gaussian"
    """How labels are weighted: by g of their vote share, only the majority, or all equally."""
    sigma: Number = Field(0.5, ge=0)
    """Width of the Gaussian g; 0 and inf are its limits."""
    k: Number = Field(1.0, ge=0, le=1)
    """Centre of the Gaussian g."""
    kappa: Amount = 3
    """A group with a smaller majority is penalised: a count, or a share of n below 1; 0: no group."""
    prompt_weight: Literal["offline", "online", "none"] | Amount = "offline"
    """u_x: g of the frozen model's majority share (offline), the group's (online); none: 1."""
    prompt_sigma: Number | None = Field(None, ge=0)
    """Width of the prompt weight's g; null: sigma."""
    scale_kl: StrictBool = True
    """Whether u_x also multiplies the KL term."""
    ties: Ties = "first"
    """Among tied majority labels the first to appear wins (first), or all share (split)."""

    def build(self) -> Method:
        weightings = {"gaussian": Gaussian(self.k, self.sigma), "majority": Majority(self.ties), "uniform": Uniform()}
        sigma = self.sigma if self.prompt_sigma is None else self.prompt_sigma
        weight = 1.0 if self.prompt_weight == "none" else self.prompt_weight
        return self.compose(
            weightings[self.label_weights],
            PenalizeLowConsensus(self.kappa, self.delta),
            WeighPrompt(weight, self.k, sigma, self.scale_kl),
        )

    @model_validator(mode="after")
    def _every_number_has_a_meaning(self) -> Self:
        if self.kappa >= 1 and self.kappa != math.floor(self.kappa):
            raise ValueError(f"kappa: must be a whole count of rollouts, or a share below 1, but is {self.kappa!r}")
        if self.prompt_sigma is not None and self.prompt_weight not in ("offline", "online"):
            raise ValueError(f"prompt_sigma has no effect with prompt_weight: {self.prompt_weight}. Leave it out")
        return self
