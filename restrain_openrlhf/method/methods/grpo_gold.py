"""GRPO on gold labels: the supervised upper bound, and the only method here that reads gold answers."""

from typing import Literal

from restrain_openrlhf.method.advantages import one_label
from restrain_openrlhf.method.settings import PenalizesOnlyMissing, register
from restrain_openrlhf.method.types import Facts, GroupScore, PromptFacts, Votes


@register
class GrpoGold(PenalizesOnlyMissing):
    """The gold answer is the label. A group in which no rollout gave it has no label, and all its advantages are 0."""

    name: Literal["grpo_gold"] = "grpo_gold"

    @property
    def reads(self) -> Facts:
        return frozenset({"gold_class"})

    def score(self, votes: Votes, facts: PromptFacts) -> GroupScore:
        return self.of_labels(votes, one_label(votes, facts.gold_class))
