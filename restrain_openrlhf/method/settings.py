"""The settings of methods: those that all share, their registry, and how a `method:` block becomes a method."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Literal

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationInfo,
    field_validator,
)

from restrain_openrlhf.method.composition import (
    LabelWeighting,
    Method,
    Selection,
    Transform,
    population_std,
    unbiased_std,
)
from restrain_openrlhf.method.registry import Registry
from restrain_openrlhf.method.rollout_plans import RolloutPlan
from restrain_openrlhf.method.types import AdvantagePair, GroupScore, PromptFacts


def _no_truth_value(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a number is needed, not true or false")
    return value


# Python takes true and false for 1 and 0; here they are refused.
Number = Annotated[float, BeforeValidator(_no_truth_value)]
# A finite number that is not negative.
Amount = Annotated[Number, Field(ge=0, allow_inf_nan=False)]


STD = {"unbiased": unbiased_std, "population": population_std}


@dataclass(frozen=True)
class PenalizeMissing(Transform):
    """A rollout without an answer has the pair (0, −δ), which u_x does not scale (docs/concepts/deviations.md)."""

    delta: float

    def __call__(self, score: GroupScore, facts: PromptFacts) -> GroupScore:
        missing = np.array([label is None for label in score.votes.classes[: score.rewards.size]])
        positive = np.where(missing, 0.0, score.pair.positive)
        negative = np.where(missing, -self.delta, score.pair.negative)
        return replace(score, pair=AdvantagePair(positive, negative))


class CommonSettings(BaseModel, ABC):
    """The settings that every method has. `std` and `eps` normalise the rewards of a group (eq. 2)."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings", use_attribute_docstrings=True)

    name: str
    std: Literal["unbiased", "population"] = "unbiased"
    """Standard deviation of the advantages: unbiased divides by n − 1, population by n."""
    eps: Amount = 1e-6
    """Added to the standard deviation."""
    missing: Literal["exclude", "penalize"] = "exclude"
    """A missing answer is never a label. penalize: its advantage is −delta besides, which nothing scales."""
    delta: Amount = 1.0
    """The penalty, for groups below kappa, and for missing answers with missing: penalize."""

    @abstractmethod
    def build(self) -> Method:
        """The method with these settings. Implementations put it together with `compose`."""

    def compose(
        self,
        label_weighting: LabelWeighting,
        *transforms: Transform,
        rollouts: RolloutPlan | None = None,
        selection: Selection | None = None,
    ) -> Method:
        """A method of these parts and the settings that all methods share. A missing answer is penalised last."""
        penalties = (PenalizeMissing(self.delta),) if self.missing == "penalize" else ()
        return Method(
            name=self.name,
            label_weighting=label_weighting,
            transforms=(*transforms, *penalties),
            std=STD[self.std],
            eps=self.eps,
            rollouts=rollouts,
            selection=selection,
        )

    def changed(self) -> set[str]:
        """Keys whose value is not the default. Which keys were given says less: a saved file gives all of them."""
        return {name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default}


class OneLabelSettings(CommonSettings):
    """Settings of a method with one pseudo-label, where `delta` has an effect only with `missing: penalize`."""

    @field_validator("delta")
    @classmethod
    def _delta_has_an_effect(cls, delta: float, info: ValidationInfo) -> float:
        if delta != cls.model_fields["delta"].default and info.data.get("missing") != "penalize":
            raise ValueError("it has an effect only with missing: penalize; set that too, or leave delta out")
        return delta


METHODS: Registry["CommonSettings"] = Registry("method", "method", "restrain_openrlhf.methods", "my_method")

register = METHODS.register
parse_settings = METHODS.parse
setting_names = METHODS.setting_names


@cache
def build(settings: CommonSettings) -> Method:
    """The method with these settings, built once in a process."""
    return settings.build()


# The type of a pydantic field that holds the settings of any method, and writes out all of their keys.
MethodSettings = Annotated[SerializeAsAny[CommonSettings], BeforeValidator(METHODS.of_field)]
