"""RENT (https://arxiv.org/abs/2505.22660): the surer a response is of its tokens, the higher its reward; no votes.

r_i = −H_i, the mean entropy of the response's tokens, and A_i = (r_i − mean) / (std + ε). The text gives all of it.

Here H_i comes from the most likely tokens alone (rollout_plans.py: token_entropy), and covers the whole response, of
which the paper also tries parts. A response without an answer is rewarded like the others.
"""

from typing import Literal

import numpy as np
from pydantic import Field, StrictInt

from restrain_openrlhf.method.rollout_plans import Independent
from restrain_openrlhf.method.settings import PenalizesOnlyMissing, register
from restrain_openrlhf.method.types import Facts, GroupScore, PromptFacts, Votes


@register
class Rent(PenalizesOnlyMissing):
    """The reward of a response is minus its mean token entropy; answers do not matter."""

    name: Literal["rent"] = "rent"
    rollouts: StrictInt = Field(default=16, ge=2)
    """Rollouts per prompt: rollout.n_samples_per_prompt."""
    entropy_top_k: StrictInt = Field(default=20, ge=2, le=20)
    """How many of the most likely tokens a token's entropy is computed from; vLLM gives at most 20."""

    @property
    def plan(self) -> Independent:
        return Independent(self.rollouts, self.rollouts, self.entropy_top_k)

    @property
    def reads(self) -> Facts:
        return frozenset({"entropies"})

    def score(self, votes: Votes, facts: PromptFacts) -> GroupScore:
        return self.of_rewards(votes, np.zeros(len(votes.counts)), own=-facts.entropies_of(votes))
