"""ETTRL: TTRL on the leaves of trees that fork at high entropy (ETMR), with advantages reshaped by entropy (EAR)."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from pydantic import Field, StrictInt

from restrain_openrlhf.errors import GroupError
from restrain_openrlhf.method.composition import Majority, Method, Ties, Transform
from restrain_openrlhf.method.rollout_plans import EntropyTrees
from restrain_openrlhf.method.settings import OneLabelSettings, register
from restrain_openrlhf.method.types import GroupScore, PromptFacts


@dataclass(frozen=True)
class ResidualEntropy(Transform):
    """A'_i = A_i (1 + (H̄ − H_i) / H̄), H_i the rollout's mean token entropy and H̄ the group's mean of it (ETTRL).

    The formula changes the sign of an advantage where H_i > 2 H̄, and so does this. Raises GroupError if the
    rollouts have no entropies, or one that is not finite.
    """

    reads = frozenset({"entropies"})

    def __call__(self, score: GroupScore, facts: PromptFacts) -> GroupScore:
        if facts.entropies is None or len(facts.entropies) != score.rewards.size:
            found = "none" if facts.entropies is None else len(facts.entropies)
            raise GroupError(
                f"Entropy-based reshaping needs the mean token entropy of each of {score.rewards.size} rollouts, but "
                f"found {found}. Draw the rollouts with this method, or give their `entropies`."
            )
        entropies = np.array(facts.entropies, dtype=np.float64)
        if not np.isfinite(entropies).all():
            raise GroupError(
                f"The mean token entropies of the rollouts are {facts.entropies}, but all must be finite. The sampled "
                "log-probabilities are broken: look at the log of vLLM, and start again from the last good checkpoint."
            )
        mean = entropies.mean()
        factors = 1 + (mean - entropies) / mean if mean > 0 else np.ones_like(entropies)
        return replace(score, pair=score.pair.times(factors))


@register
class Ettrl(OneLabelSettings):
    """The majority of the leaves of trees, which fork where the token entropy is highest, is the pseudo-label."""

    name: Literal["ettrl"] = "ettrl"
    ties: Ties = "first"
    """Among tied labels the first to appear wins (first), or they share the weight (split)."""
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

    def build(self) -> Method:
        trees = EntropyTrees(self.trees, self.forks, self.branches, self.entropy_top_k)
        reshaping = (ResidualEntropy(),) if self.ear == "residual" else ()
        return self.compose(Majority(self.ties), *reshaping, rollouts=trees)
