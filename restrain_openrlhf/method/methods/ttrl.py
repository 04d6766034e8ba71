"""TTRL (https://arxiv.org/abs/2504.16084): the majority of the group is the pseudo-label."""

from typing import Literal

from restrain_openrlhf.method.settings import BreaksTies, PenalizesOnlyMissing, SeparatesVoters, TakesGold, register
from restrain_openrlhf.method.types import GroupScore, PromptFacts, Votes


@register
class Ttrl(SeparatesVoters, BreaksTies, TakesGold, PenalizesOnlyMissing):
    """The majority of the group is the pseudo-label."""

    name: Literal["ttrl"] = "ttrl"

    def score(self, votes: Votes, facts: PromptFacts) -> GroupScore:
        return self.of_labels(votes, self.majority(votes))
