"""The service's requests and replies: single rollouts, as OpenRLHF's reward client sends them, and whole groups."""

from typing import Annotated, Any, Self

import numpy as np
from pydantic import BaseModel, Field, JsonValue, StrictBool, StrictFloat, StrictInt, StrictStr

from restrain_openrlhf.answers import MATHEMATICS
from restrain_openrlhf.method import AdvantagePair, GroupScore
from restrain_openrlhf.method.types import count_votes
from restrain_openrlhf.reference.artifact import NeededReference

# Keys of extra_logs, which become columns of Experience.info under the same names.
POSITIVE = "restrain/advantage_pos"
NEGATIVE = "restrain/advantage_neg"
KL_WEIGHT = "restrain/kl_weight"
PROMPT_WEIGHT = "restrain/prompt_weight"
PENALIZED = "restrain/penalized"

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


# Fields that a group's score and its reply have in common.
SAME_NAMES = {"answers", "keys", "majority_key", "penalized", "prompt_weight", "kl_weight"}


class RewardRequest(BaseModel, frozen=True):
    """A rollout as openrlhf/utils/agent.py sends it: lists of one element.

    `query` is prompt and response, decoded with special tokens, and `prompts` the prompt as the policy saw it. `labels`
    has an empty text or null; a label is refused.
    """

    query: tuple[StrictStr]
    prompts: tuple[StrictStr]
    labels: tuple[StrictStr | StrictInt | StrictFloat | None]


class RewardReply(BaseModel, frozen=True):
    """The reply to one rollout. Its values are scalars, because the client makes a tensor of each.

    `rewards` and `scores` are the net advantage A⁺ + A⁻, u_x included.
    """

    rewards: Number
    scores: Number
    extra_logs: dict[str, Number] = Field(default_factory=dict)


class GroupResponse(BaseModel, frozen=True):
    """One response of a group: its text, without the prompt and without special tokens.

    `finished` is false where generation was cut off: the answer counts as missing.
    """

    text: StrictStr
    finished: StrictBool


class GroupRequest(BaseModel, frozen=True):
    """One prompt's whole group: all rollouts that vote. Those that are trained on come first.

    `gold` is read only by methods that learn from gold. `entropies` has H_i of each trained rollout, in nats. `row` is
    the prompt's own data that the kind of answer reads, such as options, and `problem`.
    """

    prompt: StrictStr
    responses: tuple[GroupResponse, ...] = Field(min_length=1)
    gold: StrictStr | None = None
    entropies: tuple[Number, ...] | None = None
    row: dict[str, JsonValue] | None = None


class ScoreRequest(BaseModel, frozen=True):
    """Whole groups, each scored on its own.

    `method` are settings, and `reference` says what the reference must be made with; either is refused where the
    service has another.
    """

    groups: tuple[GroupRequest, ...] = Field(min_length=1)
    method: dict[str, Any] | None = None
    reference: NeededReference | None = None


class GroupReply(BaseModel, frozen=True):
    """A group's score. The advantages are already multiplied by u_x.

    `answers` and `classes` have one entry per response; `rewards` and the advantages one per trained rollout.
    `label_weights` is w_j of each class, by its number. `keys` has a key of each class's answer, equal where answers
    are equal, and `majority_key` that of the majority's answer, None where none was given.
    """

    answers: tuple[str | None, ...]
    classes: tuple[int | None, ...]
    keys: tuple[str, ...] = ()
    majority_count: int
    majority_key: str | None
    effective_labels: Number
    label_weights: tuple[Number, ...]
    penalized: bool
    rewards: tuple[Number, ...]
    advantage_pos: tuple[Number, ...]
    advantage_neg: tuple[Number, ...]
    prompt_weight: Number
    kl_weight: Number

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
    """One reply per group, in order.

    `answers` is the kind of answer that was read: name, version and changed settings. `reference_compared` says whether
    the request's `reference` was looked at.
    """

    groups: tuple[GroupReply, ...]
    answers: str = MATHEMATICS.identity
    reference_compared: bool = False
