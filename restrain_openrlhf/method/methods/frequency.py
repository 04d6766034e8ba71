"""Frequency reward: the more common a rollout's answer, the higher its reward.

r_i = c_y / n, y the answer of rollout i, and 0 for a missing answer; A_i = (r_i − mean) / (std + ε). Sources: EMPO
(https://arxiv.org/abs/2504.05812) and the first reward of TTRV (https://arxiv.org/abs/2510.06783).

Assumed: TTRV's second reward, the entropy of the group's answers, is left out, since it is equal for all rollouts of
a group, and standardising takes it away. EMPO leaves out groups of distinct answers, whose advantages are 0 here.
"""

from typing import Literal

from restrain_openrlhf.method.settings import PenalizesOnlyMissing, SeparatesVoters, register
from restrain_openrlhf.method.types import GroupScore, PromptFacts, Votes


@register
class Frequency(SeparatesVoters, PenalizesOnlyMissing):
    """The vote share of a rollout's answer is its reward (EMPO, TTRV)."""

    name: Literal["frequency"] = "frequency"

    def score(self, votes: Votes, facts: PromptFacts) -> GroupScore:
        return self.of_rewards(votes, votes.shares)
