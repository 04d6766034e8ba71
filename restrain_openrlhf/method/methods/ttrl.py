"""TTRL: the majority of the group is the pseudo-label; SRT's easy set builds on its settings."""

from typing import Literal, Self

from pydantic import Field, StrictInt, model_validator

from restrain_openrlhf.method.composition import Majority, Method, Ties
from restrain_openrlhf.method.rollout_plans import Independent
from restrain_openrlhf.method.settings import OneLabelSettings, register


class MajoritySettings(OneLabelSettings):
    """The group's majority is the label: `votes` rollouts vote, and the first `train_on` of them are trained on.

    Without `votes`, the rollout.n_samples_per_prompt rollouts of the host vote. Without `train_on`, all that vote are
    trained on.
    """

    ties: Ties = "first"
    """Among tied labels the first to appear wins (first), or they share the weight (split)."""
    votes: StrictInt | None = Field(default=None, ge=2)
    """Rollouts that vote; null: rollout.n_samples_per_prompt."""
    train_on: StrictInt | None = Field(default=None, ge=2)
    """Rollouts that are trained on: the first of those that vote; null: all."""

    def independent(self) -> Independent | None:
        """The plan of independent rollouts; None if `votes` is not set, so that the host's flags decide."""
        return None if self.votes is None else Independent(self.votes, self.train_on or self.votes)

    @model_validator(mode="after")
    def _trains_on_voters(self) -> Self:
        if self.train_on is not None and self.train_on > (self.votes or 0):
            raise ValueError(
                f"train_on: {self.train_on} rollouts cannot be the first of {self.votes or 'no stated number of'} "
                "votes. Set votes to as many or more"
            )
        return self


@register
class Ttrl(MajoritySettings):
    """The majority of the group is the pseudo-label."""

    name: Literal["ttrl"] = "ttrl"

    def build(self) -> Method:
        return self.compose(Majority(self.ties), rollouts=self.independent())
