"""What a scorer is asked: single rollouts, as OpenRLHF's reward client sends them to a service, and whole groups."""

from typing import Annotated

from pydantic import BaseModel, Field, JsonValue, StrictBool, StrictFloat, StrictInt, StrictStr

from restrain_openrlhf.answers.votes import StepVote

# Keys of extra_logs, which become columns of Experience.info under the same names.
POSITIVE = "restrain/advantage_pos"
NEGATIVE = "restrain/advantage_neg"
KL_WEIGHT = "restrain/kl_weight"
PROMPT_WEIGHT = "restrain/prompt_weight"
PENALIZED = "restrain/penalized"

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


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
    the prompt's own data that the kind of answer reads, such as options, and `problem`. `past` has its votes in earlier
    steps of the run, oldest first, if the method reads them.
    """

    prompt: StrictStr
    responses: tuple[GroupResponse, ...] = Field(min_length=1)
    gold: StrictStr | None = None
    entropies: tuple[Number, ...] | None = None
    row: dict[str, JsonValue] | None = None
    past: tuple[StepVote, ...] = ()
