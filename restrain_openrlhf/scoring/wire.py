"""The service's requests and replies: single rollouts, as OpenRLHF's reward client sends them, and whole groups."""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from pydantic import BaseModel, Field, JsonValue, StrictBool, StrictFloat, StrictInt, StrictStr

from restrain_openrlhf.answers import MATHEMATICS
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.method import AdvantagePair, GroupScore
from restrain_openrlhf.method.types import count_votes
from restrain_openrlhf.reference.artifact import NeededReference

# Keys of extra_logs, which become columns of Experience.info under the same names.
POSITIVE = "restrain/advantage_pos"
NEGATIVE = "restrain/advantage_neg"
KL_WEIGHT = "restrain/kl_weight"
PROMPT_WEIGHT = "restrain/prompt_weight"
PENALIZED = "restrain/penalized"

Label = StrictStr | StrictInt | StrictFloat | None
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


# Fields that a group's score and its reply have in common.
SAME_NAMES = {
    "answers", "keys", "majority_key", "penalized", "prompt_weight", "kl_weight", "residual_timeouts", "residual_deaths"
}  # fmt: skip


class QueriedRollout(NamedTuple):
    """One rollout of a RewardRequest; `gold` is None if the label is empty."""

    query: str
    prompt: str
    gold: str | None


class RewardRequest(BaseModel, frozen=True):
    """Rollouts as openrlhf/utils/agent.py sends them: lists of one element; up to OpenRLHF 0.9.0, a whole step's."""

    query: tuple[StrictStr, ...] = Field(min_length=1, description="Prompt and response, decoded with special tokens.")
    prompts: tuple[StrictStr, ...] = Field(description="The prompt of each, as the policy saw it.")
    labels: tuple[Label, ...] = Field(
        description="Gold of each, or empty or null. service.labelled_rows says what is done with it."
    )

    @property
    def rollouts(self) -> list[QueriedRollout]:
        """The rollouts one by one. Raises DataError if the lists have different lengths."""
        if not len(self.query) == len(self.prompts) == len(self.labels):
            raise DataError("query, prompts and labels are lists of different lengths. Send one of each per rollout.")
        golds = (None if label in ("", None) else str(label) for label in self.labels)
        return [QueriedRollout(*each) for each in zip(self.query, self.prompts, golds, strict=True)]


class RewardReply(BaseModel, frozen=True):
    """The reply to one rollout. Its values are scalars, because the client makes a tensor of each."""

    rewards: Number
    scores: Number
    extra_logs: dict[str, Number] = Field(default_factory=dict)


class RewardReplies(BaseModel, frozen=True):
    """The reply to several rollouts, in their order.

    It has no extra_logs, because the clients that send several rollouts do not use them (update_samples_with_rewards in
    0.8.10's trainer/ppo_utils/experience_maker.py).
    """

    rewards: tuple[Number, ...]
    scores: tuple[Number, ...]

    @classmethod
    def of(cls, replies: Sequence[RewardReply]) -> Self:
        return cls(rewards=tuple(one.rewards for one in replies), scores=tuple(one.scores for one in replies))


class GroupResponse(BaseModel, frozen=True):
    """One response of a group: its text, without the prompt and without special tokens."""

    text: StrictStr
    finished: StrictBool = Field(description="False where generation was cut off: its answer counts as missing.")


class GroupRequest(BaseModel, frozen=True):
    """One prompt's whole group: all rollouts that vote. Those that are trained on come first."""

    prompt: StrictStr
    responses: tuple[GroupResponse, ...] = Field(min_length=1)
    gold: StrictStr | None = Field(default=None, description="Read only by methods that learn from gold.")
    entropies: tuple[Number, ...] | None = Field(default=None, description="H_i of each trained rollout, in nats.")
    row: dict[str, JsonValue] | None = Field(
        default=None, description="The prompt's own data that the kind of answer reads, such as options, and `problem`."
    )


class ScoreRequest(BaseModel, frozen=True):
    """Whole groups, each scored on its own."""

    groups: tuple[GroupRequest, ...] = Field(min_length=1)
    method: dict[str, Any] | None = Field(default=None, description="Settings; refused where the service has others.")
    reference: NeededReference | None = Field(
        default=None, description="What the reference must be made with; refused where the service's was not."
    )


class GroupReply(BaseModel, frozen=True):
    """A group's score. The advantages are already multiplied by u_x.

    `answers` and `classes` have one entry per response; `rewards` and the advantages one per trained rollout.
    """

    answers: tuple[str | None, ...]
    classes: tuple[int | None, ...]
    keys: tuple[str, ...] = Field(
        default=(), description="A key of each class's answer: equal where answers are equal."
    )
    majority_count: int
    majority_key: str | None = Field(description="The key of the majority's answer; None where none was given.")
    effective_labels: Number
    label_weights: tuple[Number, ...] = Field(description="w_j of each class, by its number.")
    penalized: bool
    rewards: tuple[Number, ...]
    advantage_pos: tuple[Number, ...]
    advantage_neg: tuple[Number, ...]
    prompt_weight: Number
    kl_weight: Number
    residual_timeouts: int = Field(description="Answers that latex2sympy2 took too long over.")
    residual_deaths: int = Field(description="Answers that its process died at.")

    @classmethod
    def of(cls, score: GroupScore) -> Self:
        """The reply that carries a score."""
        return cls(
            classes=score.votes.classes,
            majority_count=score.votes.majority_count,
            effective_labels=score.votes.effective_labels,
            label_weights=tuple(score.label_weights.tolist()),
            rewards=tuple(score.rewards.tolist()),
            advantage_pos=tuple(score.pair.positive.tolist()),
            advantage_neg=tuple(score.pair.negative.tolist()),
            **{name: getattr(score, name) for name in SAME_NAMES},
        )

    def score(self) -> GroupScore:
        """The score that the reply carries. Raises GroupError if its classes are not numbered without gaps."""
        return GroupScore(
            votes=count_votes(self.classes),
            label_weights=np.array(self.label_weights, dtype=np.float64),
            pair=AdvantagePair(np.array(self.advantage_pos), np.array(self.advantage_neg)),
            rewards=np.array(self.rewards),
            **self.model_dump(include=SAME_NAMES),
        )


class ScoreReply(BaseModel, frozen=True):
    """One reply per group, in order."""

    groups: tuple[GroupReply, ...]
    answers: str = Field(
        default=MATHEMATICS.identity, description="The kind of answer that was read: name, version, changed settings."
    )
    reference_compared: bool = Field(default=False, description="Whether the request's `reference` was looked at.")


class ProblemReply(BaseModel, frozen=True):
    """The body of every reply that is not a success."""

    detail: str
