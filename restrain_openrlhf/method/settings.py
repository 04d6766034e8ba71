"""What all methods' settings share: strict types, the group's reward normalisation, and the step to a composition."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationInfo,
    field_validator,
)
from pydantic_core import CoreSchema, core_schema

from restrain_openrlhf.method.advantages import population_std, unbiased_std
from restrain_openrlhf.method.composition import Method
from restrain_openrlhf.method.label_weightings import LabelWeighting
from restrain_openrlhf.method.selection import Selection
from restrain_openrlhf.method.transforms import PenalizeMissing, Transform
from restrain_openrlhf.method.types import count_missing_as_label, count_votes
from restrain_openrlhf.rollouts import RolloutPlan


def _no_truth_value(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a number is needed, not a truth value")
    return value


# A number, also as text (YAML reads 1e-6 as text); true and false are none.
Number = Annotated[float, BeforeValidator(_no_truth_value)]


@dataclass(frozen=True, eq=False)
class OneOf:
    """Marks a text that must be a key of `choices`, a table from names to what they stand for."""

    choices: Mapping[str, object]

    def __get_pydantic_core_schema__(self, _source: object, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.literal_schema(list(self.choices))


STD = {"unbiased": unbiased_std, "population": population_std}
MISSING = {"exclude": count_votes, "as_label": count_missing_as_label, "penalize": count_votes}


class CommonSettings(BaseModel, ABC):
    """Settings that every method has. `std` and `eps` are those of the group's reward normalisation."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    name: str
    std: Annotated[str, OneOf(STD)] = Field(
        default="unbiased",
        description="Standard deviation in the advantages: unbiased divides by n − 1, population by n.",
    )
    eps: Number = Field(default=1e-6, ge=0, allow_inf_nan=False, description="Added to the standard deviation.")
    missing: Annotated[str, OneOf(MISSING)] = Field(
        default="exclude",
        description="A missing answer is no label, one more label, or no label and penalised by delta.",
    )
    delta: Number = Field(
        default=1.0,
        ge=0,
        allow_inf_nan=False,
        description="The penalty: of groups below kappa, and of missing answers with missing: penalize.",
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
            count_votes=MISSING[self.missing],
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
