"""GRPO on gold labels: the supervised upper bound, and the only method here that reads gold answers."""

from typing import Literal

from restrain_openrlhf.method.composition import GoldLabel, Method
from restrain_openrlhf.method.settings import OneLabelSettings, register


@register
class GrpoGold(OneLabelSettings):
    """The gold answer is the label. A group in which no rollout gave it has no label, and all its advantages are 0."""

    name: Literal["grpo_gold"] = "grpo_gold"

    def build(self) -> Method:
        return self.compose(GoldLabel())
