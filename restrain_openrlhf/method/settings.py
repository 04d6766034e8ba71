"""What a user may set for each method: strict and typed, with the ranges that make sense."""

import math
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    ValidationInfo,
    field_validator,
)

StdName = Literal["unbiased", "population"]
MissingName = Literal["exclude", "as_label", "penalize"]
TiesName = Literal["first", "split"]
BeliefName = Literal["gaussian", "majority", "uniform"]
PromptWeightName = Literal["offline", "online", "none"]


def _no_truth_value(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a number is needed, not a truth value")
    return value


# A number, also as text (YAML reads 1e-6 as text); true and false are none.
Number = Annotated[float, BeforeValidator(_no_truth_value)]


class CommonSettings(BaseModel):
    """Settings that every method has. `std` and `eps` are those of the group's reward normalisation."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    name: str
    std: StdName = "unbiased"
    eps: Number = Field(default=1e-6, ge=0, allow_inf_nan=False)
    missing: MissingName = "exclude"
    # Only `missing: penalize` and RESTRAIN's own penalty use it.
    delta: Number = Field(default=1.0, ge=0, allow_inf_nan=False)


class RestrainSettings(CommonSettings):
    """RESTRAIN (Yu et al.): eq. 3 has sigma and k, eq. 4 kappa and delta, eq. 5 the prompt weight."""

    name: Literal["restrain"] = "restrain"
    belief: BeliefName = "gaussian"
    sigma: Number = Field(default=0.5, ge=0)
    k: Number = Field(default=1.0, ge=0, le=1)
    # A count of rollouts (1 or more), or a share of the group (below 1); 0 switches the penalty off.
    kappa: Number = Field(default=3, ge=0, allow_inf_nan=False)
    prompt_weight: PromptWeightName | Number = "offline"
    scale_kl: StrictBool = True
    ties: TiesName = "first"

    @field_validator("kappa")
    @classmethod
    def _whole_count(cls, kappa: float) -> float:
        if kappa >= 1 and kappa != math.floor(kappa):
            raise ValueError("a count of rollouts must be whole; a share must be below 1")
        return kappa

    @field_validator("prompt_weight")
    @classmethod
    def _not_negative(cls, weight: PromptWeightName | float) -> PromptWeightName | float:
        if isinstance(weight, float) and not (weight >= 0 and math.isfinite(weight)):
            raise ValueError("a weight must be a finite number, 0 or more")
        return weight


class OneLabelSettings(CommonSettings):
    """A method that only chooses a label: a delta is refused without `missing: penalize`, where it would do nothing."""

    @field_validator("delta")
    @classmethod
    def _delta_has_an_effect(cls, delta: float, info: ValidationInfo) -> float:
        if delta != cls.model_fields["delta"].default and info.data.get("missing") != "penalize":
            raise ValueError("it has an effect only with missing: penalize; set that too, or leave delta out")
        return delta


class TtrlSettings(OneLabelSettings):
    """TTRL: the group's majority is the label."""

    name: Literal["ttrl"] = "ttrl"
    ties: TiesName = "first"


class SrtOfflineSettings(OneLabelSettings):
    """SRT, offline: the frozen model's majority is the label, stored once."""

    name: Literal["srt_offline"] = "srt_offline"


class GrpoGoldSettings(OneLabelSettings):
    """GRPO on gold labels: the supervised upper bound."""

    name: Literal["grpo_gold"] = "grpo_gold"


# Settings class of each method's name; `register` (methods.py) adds to it.
SETTINGS: dict[str, type[CommonSettings]] = {
    "restrain": RestrainSettings,
    "ttrl": TtrlSettings,
    "srt_offline": SrtOfflineSettings,
    "grpo_gold": GrpoGoldSettings,
}
