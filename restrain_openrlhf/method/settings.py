"""What a user may set for each method: strict and typed; a wrong key is an error that names it and the fix."""

import difflib
import math
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny, ValidationError, field_validator

from restrain_openrlhf.errors import ConfigError

# How a package makes its methods known in every process, Ray's workers included.
ENTRY_POINT_GROUP = "restrain_openrlhf.methods"

StdName = Literal["unbiased", "population"]
MissingName = Literal["exclude", "as_label", "penalize"]
TiesName = Literal["first", "share"]
BeliefName = Literal["gaussian", "majority", "uniform"]
PromptWeightName = Literal["offline", "online", "none"]


class CommonSettings(BaseModel):
    """Settings that every method has. `std` and `eps` are those of the group's reward normalisation."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    name: str
    std: StdName = "unbiased"
    eps: float = Field(default=1e-6, ge=0)
    missing: MissingName = "exclude"
    # Only `missing: penalize` and RESTRAIN's own penalty use it.
    delta: float = Field(default=1.0, ge=0, allow_inf_nan=False)


class RestrainSettings(CommonSettings):
    """RESTRAIN (Yu et al.): eq. 3 has sigma and k, eq. 4 kappa and delta, eq. 5 the prompt weight."""

    name: Literal["restrain"] = "restrain"
    belief: BeliefName = "gaussian"
    sigma: float = Field(default=0.5, ge=0)
    k: float = Field(default=1.0, ge=0, le=1)
    # A count of rollouts (1 or more), or a share of the group (below 1); 0 switches the penalty off.
    kappa: float = Field(default=3, ge=0, allow_inf_nan=False)
    prompt_weight: PromptWeightName | float = "offline"
    scale_kl: bool = True
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


class TtrlSettings(CommonSettings):
    """TTRL: the group's majority is the label."""

    name: Literal["ttrl"] = "ttrl"
    ties: TiesName = "first"


class SrtOfflineSettings(CommonSettings):
    """SRT, offline: the frozen model's majority is the label, stored once."""

    name: Literal["srt_offline"] = "srt_offline"


class GrpoGoldSettings(CommonSettings):
    """GRPO on gold labels: the supervised upper bound."""

    name: Literal["grpo_gold"] = "grpo_gold"


# Settings class of each method's name; `register` (methods.py) adds to it.
SETTINGS: dict[str, type[CommonSettings]] = {
    "restrain": RestrainSettings,
    "ttrl": TtrlSettings,
    "srt_offline": SrtOfflineSettings,
    "grpo_gold": GrpoGoldSettings,
}


def parse_settings(block: Mapping[str, Any]) -> CommonSettings:
    """The settings of a `method:` block. Raises ConfigError naming the key, what was found, and the fix."""
    name = block.get("name")
    if name not in SETTINGS:
        _load_methods_of_others()
    if not isinstance(name, str) or name not in SETTINGS:
        raise ConfigError(f"name: {name!r} is no method.{_suggest(str(name), SETTINGS)} Known: {', '.join(SETTINGS)}.")
    settings = SETTINGS[name]
    for key in block:
        if key not in settings.model_fields:
            known = settings.model_fields
            raise ConfigError(
                f"{key!r} is not a setting of {name}.{_suggest(str(key), known)} Known: {', '.join(known)}."
            )
    try:
        return settings.model_validate(dict(block))
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        raise ConfigError(f"{key}: {first['msg']}, but {block[key]!r} was given.") from None


def _load_methods_of_others() -> None:
    """Import what installed packages register under the entry point group; each module calls `register`."""
    for plugin in entry_points(group=ENTRY_POINT_GROUP):
        plugin.load()


def _suggest(word: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _validate(value: object) -> object:
    return value if isinstance(value, CommonSettings) else parse_settings(value if isinstance(value, dict) else {})


# A field of this type holds any method's settings, keeps its own keys when written, and is parsed strictly.
MethodSettings = Annotated[SerializeAsAny[CommonSettings], BeforeValidator(_validate)]

__all__: list[str] = ["SETTINGS", "CommonSettings", "MethodSettings", "parse_settings"]
