"""What a user may set for the methods that believe one label: TTRL, ETTRL, SRT and gold GRPO."""

from typing import Literal, Self

from pydantic import Field, StrictBool, StrictInt, ValidationInfo, field_validator, model_validator

from restrain_openrlhf.method.common_settings import CommonSettings, Number, TiesName
from restrain_openrlhf.rollouts.trees import ForkToken

EarName = Literal["residual", "clip", "both", "none"]


def changed(settings: CommonSettings) -> set[str]:
    """Keys with another value than the default; not the keys given, because settings once written out give all."""
    return {name for name, field in type(settings).model_fields.items() if getattr(settings, name) != field.default}


class OneLabelSettings(CommonSettings):
    """A method that only chooses a label: a delta is refused without `missing: penalize`, where it would do nothing."""

    @field_validator("delta")
    @classmethod
    def _delta_has_an_effect(cls, delta: float, info: ValidationInfo) -> float:
        if delta != cls.model_fields["delta"].default and info.data.get("missing") != "penalize":
            raise ValueError("it has an effect only with missing: penalize; set that too, or leave delta out")
        return delta


class MajoritySettings(OneLabelSettings):
    """The group's majority is the label. `votes` rollouts vote and the first `train_on` of them are trained on.

    Without either, all of rollout.n_samples_per_prompt do both; without `train_on`, all that vote are trained on.
    """

    ties: TiesName = "first"
    votes: StrictInt | None = Field(default=None, ge=2)
    train_on: StrictInt | None = Field(default=None, ge=2)

    @model_validator(mode="after")
    def _trains_on_voters(self) -> Self:
        if self.train_on is not None and self.train_on > (self.votes or 0):
            raise ValueError(
                f"train_on: {self.train_on} rollouts cannot be the first of {self.votes or 'no stated number of'} "
                "votes. Set votes to as many or more"
            )
        return self


class TtrlSettings(MajoritySettings):
    """TTRL: the group's majority is the label."""

    name: Literal["ttrl"] = "ttrl"


class SrtEasySettings(MajoritySettings):
    """SRT on easy prompts: TTRL's labels, on the prompts with the highest majority shares of the frozen model."""

    name: Literal["srt_easy"] = "srt_easy"
    # The top third, as in SRT's own paper, or else every prompt whose share is at least the cut-off.
    easy_share: Number = Field(default=1 / 3, gt=0, le=1)
    easy_cutoff: Number | None = Field(default=None, ge=0, le=1)

    @model_validator(mode="after")
    def _one_criterion(self) -> Self:
        if self.easy_cutoff is not None and "easy_share" in changed(self):
            raise ValueError("easy_share and easy_cutoff both say which prompts are easy. Leave one of them out")
        return self


class EttrlSettings(MajoritySettings):
    """ETTRL: TTRL on the leaves of entropy-forked trees (ETMR), advantages reshaped by entropy (EAR)."""

    name: Literal["ettrl"] = "ettrl"
    etmr: StrictBool = True
    trees: StrictInt = Field(default=12, ge=1)
    forks: StrictInt = Field(default=2, ge=1)
    branches: StrictInt = Field(default=2, ge=1)
    fork_token: ForkToken = "resample"
    # The least distance between two forks of a tree, in tokens.
    fork_spacing: StrictInt = Field(default=1, ge=1)
    # How many of the most likely tokens make up a token's entropy; vLLM gives no more than 20.
    entropy_top_k: StrictInt = Field(default=20, ge=2, le=20)
    ear: EarName = "residual"
    ear_bound: Number = Field(default=2.0, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _every_key_has_an_effect(self) -> Self:
        given = changed(self)
        idle = TREE_KEYS & given if not self.etmr else {"votes", "train_on"} & given
        if idle:
            raise ValueError(f"{min(idle)} has no effect with etmr: {str(self.etmr).lower()}. Leave one of them out")
        if not self.etmr and self.votes is None:
            raise ValueError("etmr: false draws rollouts one by one, and needs to know how many. Set votes")
        if "ear_bound" in given and self.ear not in BOUNDED:
            raise ValueError(f"ear_bound has no effect with ear: {self.ear}. Leave it out, or set ear to clip or both")
        return self


TREE_KEYS = {"trees", "forks", "branches", "fork_token", "fork_spacing"}
BOUNDED = ("clip", "both")


class SrtOfflineSettings(OneLabelSettings):
    """SRT, offline: the frozen model's majority is the label, stored once."""

    name: Literal["srt_offline"] = "srt_offline"


class GrpoGoldSettings(OneLabelSettings):
    """GRPO on gold labels: the supervised upper bound."""

    name: Literal["grpo_gold"] = "grpo_gold"
