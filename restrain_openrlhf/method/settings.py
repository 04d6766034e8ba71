"""What a user may set for each method: strict and typed, with the ranges that make sense."""

import math
from typing import Literal, Self

from pydantic import Field, StrictBool, field_validator, model_validator

from restrain_openrlhf.method.baseline_settings import (
    EttrlSettings,
    GrpoGoldSettings,
    SrtEasySettings,
    SrtOfflineSettings,
    TtrlSettings,
)
from restrain_openrlhf.method.common_settings import CommonSettings, Number, TiesName

__all__ = ["SETTINGS", "CommonSettings", "Number", "RestrainSettings"]

BeliefName = Literal["gaussian", "majority", "uniform"]
PromptWeightName = Literal["offline", "online", "none"]


class RestrainSettings(CommonSettings):
    """RESTRAIN (Yu et al.): eq. 3 has sigma and k, eq. 4 kappa and delta, eq. 5 the prompt weight."""

    name: Literal["restrain"] = "restrain"
    belief: BeliefName = "gaussian"
    sigma: Number = Field(default=0.5, ge=0)
    k: Number = Field(default=1.0, ge=0, le=1)
    # A count of rollouts (1 or more), or a share of the group (below 1); 0 switches the penalty off.
    kappa: Number = Field(default=3, ge=0, allow_inf_nan=False)
    prompt_weight: PromptWeightName | Number = "offline"
    # The sigma of the prompt weight's g; None: the label weights' own, as eq. 5 reads.
    prompt_sigma: Number | None = Field(default=None, ge=0)
    scale_kl: StrictBool = True
    ties: TiesName = "first"

    @field_validator("kappa")
    @classmethod
    def _whole_count(cls, kappa: float) -> float:
        if kappa >= 1 and kappa != math.floor(kappa):
            raise ValueError("a count of rollouts must be whole; a share must be below 1")
        return kappa

    @model_validator(mode="after")
    def _prompt_sigma_has_an_effect(self) -> Self:
        if self.prompt_sigma is not None and self.prompt_weight not in ("offline", "online"):
            raise ValueError(
                f"prompt_sigma has no effect with prompt_weight: {self.prompt_weight}. Leave it out, or set "
                "prompt_weight to offline or online"
            )
        return self

    @field_validator("prompt_weight")
    @classmethod
    def _not_negative(cls, weight: PromptWeightName | float) -> PromptWeightName | float:
        if isinstance(weight, float) and not (weight >= 0 and math.isfinite(weight)):
            raise ValueError("a weight must be a finite number, 0 or more")
        return weight


# Settings class of each method's name; `register` (methods.py) adds to it.
SETTINGS: dict[str, type[CommonSettings]] = {
    "restrain": RestrainSettings,
    "ttrl": TtrlSettings,
    "ettrl": EttrlSettings,
    "srt_offline": SrtOfflineSettings,
    "srt_easy": SrtEasySettings,
    "grpo_gold": GrpoGoldSettings,
}
