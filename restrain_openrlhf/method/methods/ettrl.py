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
    etmr: StrictBool = Field(default=True, description="Draw trees; false: votes independent rollouts.")
    trees: StrictInt = Field(default=12, ge=1, description="Trees per prompt.")
    forks: StrictInt = Field(default=2, ge=1, description="Forks per tree, at the tokens of highest entropy.")
    branches: StrictInt = Field(default=2, ge=1, description="Branches per fork.")
    fork_token: ForkToken = Field(
        default="resample", description="The token after a fork: sampled again, or one of the most likely others."
    )
    fork_spacing: StrictInt = Field(
        default=1, ge=1, description="Least distance between two forks of a tree, in tokens."
    )
    entropy_top_k: StrictInt = Field(
        default=20,
        ge=2,
        le=20,
        description="Most likely tokens that make up a token's entropy; vLLM gives no more than 20.",
    )
    ear: Annotated[str, OneOf(RESHAPINGS)] = Field(
        default="residual", description="How advantages are reshaped by entropy."
    )
    ear_bound: Number = Field(
        default=2.0, gt=0, allow_inf_nan=False, description="Bound of the clipped advantages, with ear: clip or both."
    )

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
