"""RESTRAIN (https://arxiv.org/abs/2510.02172): equations 3 to 5, with their settings.

The n rollouts of a prompt have m distinct answers, which are its labels: c_j rollouts gave label j, f_j = c_j / n, and
M = max_j c_j. Of n_ref rollouts of the frozen model, c_ref gave that model's majority answer. A⁺ and A⁻ are in
advantages.py (eq. 2 and 6).
"""

import math
from dataclasses import replace
from typing import Literal, Self

import numpy as np
from pydantic import Field, StrictBool, model_validator

from restrain_openrlhf.method.advantages import penalty, uniform
from restrain_openrlhf.method.settings import Amount, BreaksTies, Number, TakesGold, register
from restrain_openrlhf.method.types import Facts, Floats, GroupScore, PromptFacts, Votes


def log_g(squares: Floats, sigma: float) -> Floats:
    """log g = −d² / 2σ², elementwise, of the squares d² = (f − k)². σ = 0 and σ = ∞ give the exact limits."""
    if sigma == 0:
        return np.where(squares == 0, 0.0, -np.inf)
    # The square of a tiny σ would underflow to 0, so divide by σ twice. A quotient that overflows means weight 0.
    with np.errstate(over="ignore"):
        return -(squares / sigma) / sigma / 2


@register
class Restrain(BreaksTies, TakesGold):
    """The paper's method: sigma and k are those of eq. 3, kappa and delta of eq. 4, the prompt weight of eq. 5."""

    name: Literal["restrain"] = "restrain"
    delta: Amount = 1.0
    """The penalty of groups below kappa, and of a missing answer with missing: penalize."""
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

    @property
    def reads(self) -> Facts:
        return frozenset({"reference"} if self.prompt_weight == "offline" else ())

    def score(self, votes: Votes, facts: PromptFacts) -> GroupScore:
        """u_x Σ_j w_j A_ij, and −u_x δ for all rollouts where M < κ."""
        weightings = {"gaussian": self.gaussian, "majority": self.majority, "uniform": uniform}
        weights = weightings[self.label_weights](votes)
        below = self.is_below_kappa(votes)
        score = penalty(votes, weights, self.delta) if below else self.of_labels(votes, weights)
        u_x = self.weight_of_prompt(votes, facts)
        return replace(score, pair=score.pair.times(u_x), prompt_weight=u_x, kl_weight=u_x if self.scale_kl else 1.0)

    def gaussian(self, votes: Votes) -> Floats:
        """w_j = g(f_j) / Σ_l g(f_l), with g(f) = exp(−(f − k)² / 2σ²): weights (m,) (eq. 3)."""
        # c − k · n is exact for k = 1/2, where two shares may be equally far from k; f − k would round.
        squares = ((np.array(votes.counts, dtype=np.float64) - self.k * votes.n) / votes.n) ** 2
        # A factor common to all g cancels out. Without dividing by the largest, a small σ would make every g 0.
        g = np.exp(log_g(squares - squares.min(initial=np.inf), self.sigma))
        weights: Floats = g / g.sum()
        return weights

    def is_below_kappa(self, votes: Votes) -> bool:
        """M < κ (eq. 4). κ is a count, or a share of n below 1."""
        # Compare M / n with κ: 0.07 · 100 rounds above 7, so that a group exactly at κ would be penalised.
        return (votes.majority_count / votes.n if self.kappa < 1 else votes.majority_count) < self.kappa

    def weight_of_prompt(self, votes: Votes, facts: PromptFacts) -> float:
        """u_x (eq. 5): g(c_ref / n_ref) offline, g(M / n) online, or a given number."""
        if not isinstance(self.prompt_weight, str) or self.prompt_weight == "none":
            return 1.0 if self.prompt_weight == "none" else self.prompt_weight
        share = facts.reference.share if facts.reference else votes.majority_count / votes.n
        sigma = self.sigma if self.prompt_sigma is None else self.prompt_sigma
        return math.exp(log_g(np.array((share - self.k) ** 2), sigma))

    @model_validator(mode="after")
    def _every_number_has_a_meaning(self) -> Self:
        if self.kappa >= 1 and self.kappa != math.floor(self.kappa):
            raise ValueError(f"kappa: must be a whole count of rollouts, or a share below 1, but is {self.kappa!r}")
        if self.prompt_sigma is not None and self.prompt_weight not in ("offline", "online"):
            raise ValueError(f"prompt_sigma has no effect with prompt_weight: {self.prompt_weight}. Leave it out")
        return self
