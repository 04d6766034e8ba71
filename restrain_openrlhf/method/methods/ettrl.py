"""ETTRL: TTRL on the leaves of trees that fork at high entropy (ETMR), with advantages reshaped by entropy (EAR)."""

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field, StrictInt

from restrain_openrlhf.method.rollout_plans import EntropyTrees
from restrain_openrlhf.method.settings import BreaksTies, PenalizesOnlyMissing, register
from restrain_openrlhf.method.types import Facts, Floats, GroupScore, PromptFacts, Votes


@register
class Ettrl(BreaksTies, PenalizesOnlyMissing):
    """The majority of the leaves of trees, which fork where the token entropy is highest, is the pseudo-label."""

    name: Literal["ettrl"] = "ettrl"
    trees: StrictInt = Field(default=12, ge=1)
    """Trees per prompt."""
    forks: StrictInt = Field(default=2, ge=1)
    """Forks per tree, at the tokens of highest entropy."""
    branches: StrictInt = Field(default=2, ge=1)
    """Branches per fork."""
    entropy_top_k: StrictInt = Field(default=20, ge=2, le=20)
    """How many of the most likely tokens a token's entropy is computed from; vLLM gives at most 20."""
    ear: Literal["residual", "none"] = "residual"
    """How advantages are reshaped by entropy."""

    @property
    def plan(self) -> EntropyTrees:
        return EntropyTrees(self.trees, self.forks, self.branches, self.entropy_top_k)

    @property
    def reads(self) -> Facts:
        return frozenset({"entropies"} if self.ear == "residual" else ())

    def score(self, votes: Votes, facts: PromptFacts) -> GroupScore:
        score = self.of_labels(votes, self.majority(votes))
        if self.ear == "none":
            return score
        return replace(score, pair=score.pair.times(residual(facts.entropies_of(votes))))


def residual(entropies: Floats) -> Floats:
    """1 + (H̄ − H_i) / H̄, (n,): what EAR multiplies A_i by; H_i is the rollout's mean token entropy, H̄ its mean.

    The formula changes the sign of an advantage where H_i > 2 H̄, and so does this.
    """
    mean = entropies.mean()
    factors: Floats = 1 + (mean - entropies) / mean if mean > 0 else np.ones_like(entropies)
    return factors
