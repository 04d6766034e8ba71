"""Settings of methods: what all share, the registry by name, and the way from a `method:` block to a method."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from restrain_openrlhf.errors import ConfigError, did_you_mean
from restrain_openrlhf.method.advantages import population_std, unbiased_std
from restrain_openrlhf.method.composition import LabelWeighting, Method, Selection, Transform
from restrain_openrlhf.method.rollout_plans import RolloutPlan
from restrain_openrlhf.method.types import AdvantagePair, GroupScore, PromptFacts


def _no_truth_value(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a number is needed, not a truth value")
    return value


# A number, also as text (YAML reads 1e-6 as text); true and false are none.
Number = Annotated[float, BeforeValidator(_no_truth_value)]
# One that is finite and not negative.
Amount = Annotated[Number, Field(ge=0, allow_inf_nan=False)]


STD = {"unbiased": unbiased_std, "population": population_std}


@dataclass(frozen=True)
class PenalizeMissing(Transform):
    """A rollout without an answer has A = −δ instead of the negative advantage of every label."""

    delta: float

    def __call__(self, score: GroupScore, facts: PromptFacts) -> GroupScore:
        missing = np.array([label is None for label in score.votes.classes[: score.rewards.size]])
        positive = np.where(missing, 0.0, score.pair.positive)
        negative = np.where(missing, -self.delta, score.pair.negative)
        return replace(score, pair=AdvantagePair(positive, negative))


class CommonSettings(BaseModel, ABC):
    """Settings that every method has. `std` and `eps` are those of the group's reward normalisation."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    name: str
    std: Literal["unbiased", "population"] = Field(
        "unbiased", description="Standard deviation in the advantages: unbiased divides by n − 1, population by n."
    )
    eps: Amount = Field(1e-6, description="Added to the standard deviation.")
    missing: Literal["exclude", "penalize"] = Field(
        "exclude", description="A missing answer is no label, or no label and penalised by delta."
    )
    delta: Amount = Field(
        1.0, description="The penalty: of groups below kappa, and of missing answers with missing: penalize."
    )

    @abstractmethod
    def build(self) -> Method:
        """The method with these settings; `compose` makes it from parts."""

    def compose(
        self,
        label_weighting: LabelWeighting,
        *transforms: Transform,
        rollouts: RolloutPlan | None = None,
        selection: Selection | None = None,
    ) -> Method:
        """A method of these parts, with the settings that all share: missing answers, standard deviation, epsilon."""
        penalties = (PenalizeMissing(self.delta),) if self.missing == "penalize" else ()
        return Method(
            name=self.name,
            label_weighting=label_weighting,
            transforms=(*penalties, *transforms),
            std=STD[self.std],
            eps=self.eps,
            rollouts=rollouts,
            selection=selection,
        )

    def changed(self) -> set[str]:
        """Keys that differ from the default; not the keys given, because settings once written out give all."""
        return {name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default}


class OneLabelSettings(CommonSettings):
    """A method with one pseudo-label: a delta without `missing: penalize` is refused, as it would have no effect."""

    @field_validator("delta")
    @classmethod
    def _delta_has_an_effect(cls, delta: float, info: ValidationInfo) -> float:
        if delta != cls.model_fields["delta"].default and info.data.get("missing") != "penalize":
            raise ValueError("it has an effect only with missing: penalize; set that too, or leave delta out")
        return delta


# The group under which an installed package names its modules of methods; every process loads them, Ray's workers too.
ENTRY_POINT_GROUP = "restrain_openrlhf.methods"

METHODS: dict[str, type[CommonSettings]] = {}

Settings = TypeVar("Settings", bound=CommonSettings)


def register(settings: type[Settings]) -> type[Settings]:
    """Class decorator: make a method known by its settings' `name`, in configurations, commands and training.

    Raises ConfigError where the class states no name, or another method has it.
    """
    field = settings.model_fields["name"]
    if field.is_required():
        raise ConfigError(f"{settings.__name__} has no name. Add the line: name: Literal['my_method'] = 'my_method'.")
    if field.default in METHODS:
        raise ConfigError(f"A method named {field.default!r} is registered already. Choose another name for yours.")
    METHODS[field.default] = settings
    return settings


@cache
def build(settings: CommonSettings) -> Method:
    """The method with these settings: one for all that are equal, so that a process builds its own once."""
    return settings.build()


def parse_settings(block: Mapping[str, Any]) -> CommonSettings:
    """The settings of a `method:` block. Raises ConfigError naming the key, what was found, and the fix."""
    name, settings = _named(block.get("name"))
    for key in block:
        if key not in settings.model_fields:
            known = settings.model_fields
            raise ConfigError(
                f"{key!r} is not a setting of {name}.{did_you_mean(key, known)} Known: {', '.join(known)}."
            )
    try:
        return settings.model_validate(dict(block))
    except ValidationError as error:
        raise ConfigError(_explain(error, block)) from None


def setting_names(name: object) -> tuple[str, ...]:
    """The keys of the method of this name; none where there is no such method."""
    return tuple(METHODS[name].model_fields) if isinstance(name, str) and name in METHODS else ()


def _named(name: object) -> tuple[str, type[CommonSettings]]:
    if name not in tuple(METHODS):
        _load_methods_of_installed_packages()
    if not isinstance(name, str) or name not in METHODS:
        raise ConfigError(f"name: {name!r} is no method.{did_you_mean(name, METHODS)} Known: {', '.join(METHODS)}.")
    return name, METHODS[name]


def _load_methods_of_installed_packages() -> None:
    for plugin in entry_points(group=ENTRY_POINT_GROUP):
        try:
            plugin.load()
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"The entry point {plugin.name!r} of {ENTRY_POINT_GROUP} names {plugin.value!r}, which does not load "
                f"({error}). Fix or uninstall the package that has it."
            ) from error


def _explain(error: ValidationError, block: Mapping[str, Any]) -> str:
    """The first wrong key, everything it could be, and what was given; an error of the whole block as it is."""
    first, *_ = problems = error.errors()
    if not first["loc"]:
        return f"{first['msg']}.".replace("Value error, ", "")
    key = first["loc"][0]
    wanted = dict.fromkeys(problem["msg"] for problem in problems if problem["loc"][:1] == (key,))
    return f"{key}: {' or '.join(wanted)}, but {block.get(str(key))!r} was given.".replace("Value error, ", "")


def _validate(value: object) -> object:
    if isinstance(value, CommonSettings):
        return value
    if not isinstance(value, dict):
        raise ConfigError(f"method: {value!r} is no block of settings. Write for example `method: {{name: restrain}}`.")
    return parse_settings(value)


# A field of this type holds any method's settings, keeps its own keys when written, and is parsed strictly.
MethodSettings = Annotated[SerializeAsAny[CommonSettings], BeforeValidator(_validate)]
