"""What every method's settings share: strictness, numbers, and the group's reward normalisation."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

StdName = Literal["unbiased", "population"]
MissingName = Literal["exclude", "as_label", "penalize"]
TiesName = Literal["first", "split"]


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
