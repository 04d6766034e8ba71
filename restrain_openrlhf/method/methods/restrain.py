"""RESTRAIN (Yu et al.): labels weighted by vote share, a penalty for low consensus, prompts weighted offline."""

import math
from collections.abc import Callable
from typing import Annotated, Literal, Self

from pydantic import Field, StrictBool, field_validator, model_validator

from restrain_openrlhf.method import label_weightings, prompt_weightings
from restrain_openrlhf.method.composition import Method
from restrain_openrlhf.method.label_weightings import LabelWeighting, Shaping, Ties
from restrain_openrlhf.method.prompt_weightings import Constant, PromptWeighting, ScaleByPromptWeight
from restrain_openrlhf.method.registry import register
from restrain_openrlhf.method.settings import CommonSettings, Number, OneOf
from restrain_openrlhf.method.transforms import PenalizeLowConsensus

LABEL_WEIGHTS: dict[str, Callable[["Restrain"], LabelWeighting]] = {
    "gaussian": lambda settings: label_weightings.Gaussian(Shaping(settings.k, settings.sigma)),
    "majority": lambda settings: label_weightings.Majority(settings.ties),
    "uniform": lambda settings: label_weightings.Uniform(),
}
PROMPT_WEIGHTS: dict[str, Callable[[Shaping], PromptWeighting]] = {
    "offline": prompt_weightings.Offline,
    "online": prompt_weightings.Online,
    "none": lambda shaping: Constant(1.0),
}
Weight = Annotated[Number, Field(ge=0, allow_inf_nan=False)]


@register
class Restrain(CommonSettings):
    """Eq. 3 has sigma and k, eq. 4 kappa and delta, eq. 5 the prompt weight."""

    name: Literal["restrain"] = "restrain"
    label_weights: Annotated[str, OneOf(LABEL_WEIGHTS)] = Field(
        default="gaussian",
        description="How labels are weighted: by g of their vote share, the majority alone, or all alike.",
    )
    sigma: Number = Field(default=0.5, ge=0, description="Width of the Gaussian g; 0 and inf are its limits.")
    k: Number = Field(default=1.0, ge=0, le=1, description="Centre of the Gaussian g.")
    kappa: Number = Field(
        default=3,
        ge=0,
        allow_inf_nan=False,
        description="A group with a smaller majority is penalised: a count of rollouts (1 or more) or a share; 0: off.",
    )
    prompt_weight: Annotated[str, OneOf(PROMPT_WEIGHTS)] | Weight = Field(
        default="offline",
        description="u_x: g of the frozen model's majority share, of the group's own, 1, or a number.",
    )
    prompt_sigma: Number | None = Field(default=None, ge=0, description="Width of the prompt weight's g; null: sigma.")
    scale_kl: StrictBool = Field(default=True, description="Multiply the KL term by u_x too.")
    ties: Ties = Field(
        default="first",
        description="With label_weights: majority, the first of tied labels to appear wins, or they share the weight.",
    )

    def build(self) -> Method:
        return self.compose(
            LABEL_WEIGHTS[self.label_weights](self),
            PenalizeLowConsensus(self.kappa, self.delta),
            ScaleByPromptWeight(self._prompt_weighting(), self.scale_kl),
        )

    def _prompt_weighting(self) -> PromptWeighting:
        if isinstance(self.prompt_weight, float):
            return Constant(self.prompt_weight)
        sigma = self.sigma if self.prompt_sigma is None else self.prompt_sigma
        return PROMPT_WEIGHTS[self.prompt_weight](Shaping(self.k, sigma))

    @field_validator("kappa")
    @classmethod
    def _whole_count(cls, kappa: float) -> float:
        if kappa >= 1 and kappa != math.floor(kappa):
            raise ValueError("a count of rollouts must be whole; a share must be below 1")
        return kappa

    @model_validator(mode="after")
    def _prompt_sigma_has_an_effect(self) -> Self:
        if self.prompt_sigma is not None and isinstance(self._prompt_weighting(), Constant):
            raise ValueError(
                f"prompt_sigma has no effect with prompt_weight: {self.prompt_weight}. Leave it out, or set "
                "prompt_weight to offline or online"
            )
        return self
