"""The settings of methods: those that all share, those that several share, and their registry."""

from abc import ABC, abstractmethod
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    SerializeAsAny,
    StrictInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from restrain_openrlhf.method import advantages
from restrain_openrlhf.method.registry import Registry
from restrain_openrlhf.method.rollout_plans import Independent, RolloutPlan
from restrain_openrlhf.method.types import Facts, Floats, GroupScore, PromptFacts, Score, Selection, Votes


def _no_truth_value(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a number is needed, not true or false")
    return value


# Python takes true and false for 1 and 0; here they are refused.
Number = Annotated[float, BeforeValidator(_no_truth_value)]
# A finite number that is not negative.
Amount = Annotated[Number, Field(ge=0, allow_inf_nan=False)]


class CommonSettings(
    BaseModel, ABC, frozen=True, extra="forbid", ser_json_inf_nan="strings", use_attribute_docstrings=True
):
    """The settings that every method has, and the method itself: `score`. `std` and `eps` normalise rewards (eq. 2)."""

    name: str
    std: Literal["unbiased", "population"] = "unbiased"
    """Standard deviation of the advantages: unbiased divides by n − 1, population by n."""
    eps: Amount = 1e-6
    """Added to the standard deviation."""
    missing: Literal["exclude", "penalize"] = "exclude"
    """A missing answer is never a label. penalize: its advantage is −delta besides, which nothing scales."""
    delta: Amount = 1.0
    """The penalty of a missing answer, with missing: penalize."""

    @abstractmethod
    def score(self, votes: Votes, facts: PromptFacts) -> GroupScore:
        """The method: from a group's votes, and the facts that it `reads`, to the score of its trained rollouts."""

    @property
    def reads(self) -> Facts:
        """Names of the facts that `score` reads. All others are None when it is called."""
        return frozenset()

    @property
    def plan(self) -> RolloutPlan | None:
        """How a prompt's rollouts are drawn; None: as the host's flags say."""
        return None

    @property
    def selection(self) -> Selection | None:
        """Which prompts are trained on; None: all."""
        return None

    @property
    def gold_score(self) -> Score | None:
        """What takes the place of `score` for a prompt whose row has a gold answer; None: nothing."""
        return None

    @property
    def share_of_labelled(self) -> float | None:
        """The share of an episode's prompts that shall have a gold answer; None: that of the file."""
        return None

    def of_labels(self, votes: Votes, weights: Floats) -> GroupScore:
        """The score where label j is believed with weight w_j; `weights` is (m,)."""
        return advantages.of_labels(votes, weights, self.ddof, self.eps)

    def of_rewards(self, votes: Votes, per_label: Floats, own: Floats | float = 0.0) -> GroupScore:
        """The score where a rollout's reward is that of its label, (m,), plus one of its `own`, (n,)."""
        return advantages.of_rewards(votes, per_label, own, self.ddof, self.eps)

    @property
    def ddof(self) -> int:
        """What the standard deviation subtracts from n."""
        return {"unbiased": 1, "population": 0}[self.std]

    def changed(self) -> set[str]:
        """Keys whose value is not the default. Which keys were given says less: a saved file gives all of them."""
        return {name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default}


class PenalizesOnlyMissing(CommonSettings):
    """A method without a penalty of its own: `delta` has an effect only with `missing: penalize`."""

    @field_validator("delta")
    @classmethod
    def _delta_has_an_effect(cls, delta: float, info: ValidationInfo) -> float:
        if delta != cls.model_fields["delta"].default and info.data.get("missing") != "penalize":
            raise ValueError("it has an effect only with missing: penalize; set that too, or leave delta out")
        return delta


class BreaksTies(CommonSettings):
    """A method that believes the group's majority."""

    ties: Literal["first", "split"] = "first"
    """Among tied labels the first to appear wins (first), or they share the weight (split)."""

    def majority(self, votes: Votes) -> Floats:
        """All weight on the most common label, or shared among tied ones; shape (m,)."""
        return advantages.majority(votes, shared=self.ties == "split")


class TakesGold(CommonSettings):
    """A method without labels that can learn from the gold answers of some prompts."""

    gold: Literal["ignored", "where_given"] = "ignored"
    """where_given: a prompt whose row has a gold answer (data.label_key) is trained on it alone, others on their
    votes."""
    labelled_share: Number | None = Field(default=None, gt=0, lt=1)
    """Share of an episode's prompts that have a gold answer, reached by repeating them; null: as in the file."""

    @property
    def gold_score(self) -> Score | None:
        return self._on_gold if self.gold == "where_given" else None

    @property
    def share_of_labelled(self) -> float | None:
        return self.labelled_share

    def _on_gold(self, votes: Votes, facts: PromptFacts) -> GroupScore:
        """All weight on the gold label, no penalty, and u_x = 1, as in grpo_gold."""
        return self.of_labels(votes, advantages.one_label(votes, facts.gold_class))

    @model_validator(mode="after")
    def _repeats_what_it_reads(self) -> Self:
        if self.labelled_share is not None and self.gold == "ignored":
            raise ValueError("labelled_share has an effect only with gold: where_given. Set that too, or leave it out")
        return self


class SeparatesVoters(CommonSettings):
    """`votes` rollouts vote, and the first `train_on` of them are trained on.

    Without `votes`, the rollout.n_samples_per_prompt rollouts of the host vote. Without `train_on`, all that vote are
    trained on.
    """

    votes: StrictInt | None = Field(default=None, ge=2)
    """Rollouts that vote; null: rollout.n_samples_per_prompt."""
    train_on: StrictInt | None = Field(default=None, ge=2)
    """Rollouts that are trained on: the first of those that vote; null: all."""

    @property
    def plan(self) -> RolloutPlan | None:
        return None if self.votes is None else Independent(self.votes, self.train_on or self.votes)

    @model_validator(mode="after")
    def _trains_on_voters(self) -> Self:
        if self.train_on is not None and self.train_on > (self.votes or 0):
            raise ValueError(
                f"train_on: {self.train_on} rollouts cannot be the first of {self.votes or 'no stated number of'} "
                "votes. Set votes to as many or more"
            )
        return self


METHODS: Registry[CommonSettings] = Registry("method", "method", "restrain_openrlhf.methods", "my_method")

register = METHODS.register
parse_settings = METHODS.parse
setting_names = METHODS.setting_names

# The type of a pydantic field that holds the settings of any method, and writes out all of their keys.
MethodSettings = Annotated[SerializeAsAny[CommonSettings], BeforeValidator(METHODS.of_field)]
