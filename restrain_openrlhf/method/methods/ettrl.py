"""ETTRL: TTRL on the leaves of entropy-forked trees (ETMR), advantages reshaped by entropy (EAR)."""

from collections.abc import Callable
from typing import Annotated, Literal, Self

from pydantic import Field, StrictBool, StrictInt, model_validator

from restrain_openrlhf.method.composition import Method
from restrain_openrlhf.method.label_weightings import Majority
from restrain_openrlhf.method.methods.ttrl import MajoritySettings
from restrain_openrlhf.method.registry import register
from restrain_openrlhf.method.settings import Number, OneOf
from restrain_openrlhf.method.transforms import ClipAdvantages, ResidualEntropy, Transform
from restrain_openrlhf.rollouts import EntropyTrees, ForkToken

RESHAPINGS: dict[str, Callable[[float], tuple[Transform, ...]]] = {
    "residual": lambda bound: (ResidualEntropy(),),
    "clip": lambda bound: (ClipAdvantages(bound),),
    "both": lambda bound: (ResidualEntropy(), ClipAdvantages(bound)),
    "none": lambda bound: (),
}
TREE_KEYS = {"trees", "forks", "branches", "fork_token", "fork_spacing"}


@register
class Ettrl(MajoritySettings):
    """`etmr: false` draws `votes` independent rollouts instead of trees."""

    name: Literal["ettrl"] = "ettrl"
    etmr: StrictBool = True
    trees: StrictInt = Field(default=12, ge=1)
    forks: StrictInt = Field(default=2, ge=1)
    branches: StrictInt = Field(default=2, ge=1)
    fork_token: ForkToken = "resample"
    # The least distance between two forks of a tree, in tokens.
    fork_spacing: StrictInt = Field(default=1, ge=1)
    # How many of the most likely tokens make up a token's entropy; vLLM gives no more than 20.
    entropy_top_k: StrictInt = Field(default=20, ge=2, le=20)
    ear: Annotated[str, OneOf(RESHAPINGS)] = "residual"
    ear_bound: Number = Field(default=2.0, gt=0, allow_inf_nan=False)

    def build(self) -> Method:
        rollouts = self._trees() if self.etmr else self.independent(self.entropy_top_k)
        return self.compose(Majority(self.ties), *RESHAPINGS[self.ear](self.ear_bound), rollouts=rollouts)

    def _trees(self) -> EntropyTrees:
        return EntropyTrees(
            self.trees, self.forks, self.branches, self.entropy_top_k, self.fork_token, self.fork_spacing
        )

    @model_validator(mode="after")
    def _every_key_has_an_effect(self) -> Self:
        given = self.changed()
        idle = TREE_KEYS & given if not self.etmr else {"votes", "train_on"} & given
        if idle:
            raise ValueError(f"{min(idle)} has no effect with etmr: {str(self.etmr).lower()}. Leave one of them out")
        if not self.etmr and self.votes is None:
            raise ValueError("etmr: false draws rollouts one by one, and needs to know how many. Set votes")
        if "ear_bound" in given and self.ear not in ("clip", "both"):
            raise ValueError(f"ear_bound has no effect with ear: {self.ear}. Leave it out, or set ear to clip or both")
        return self
