"""The wire: what OpenRLHF's remote reward client sends and reads, and whole groups for any other framework."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

# Keys of extra_logs, which become columns of Experience.info under the same names.
POSITIVE = "restrain/advantage_pos"
NEGATIVE = "restrain/advantage_neg"
KL_WEIGHT = "restrain/kl_weight"
EXPECTED_REWARD = "restrain/reward"
PROMPT_WEIGHT = "restrain/prompt_weight"
PENALIZED = "restrain/penalized"

Label = StrictStr | StrictInt | StrictFloat | None
Number = Annotated[float, Field(allow_inf_nan=False)]


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True)


class RewardRequest(_Wire):
    """One rollout, as openrlhf/utils/agent.py sends it: three lists of one element."""

    query: tuple[StrictStr] = Field(description="Prompt and response, decoded with special tokens.")
    prompts: tuple[StrictStr] = Field(description="The prompt, as the policy saw it.")
    labels: tuple[Label] = Field(description="Gold answer; empty or null for a training row.")

    @property
    def gold(self) -> str | None:
        """The label as text, None where there is none."""
        (label,) = self.labels
        return None if label in ("", None) else str(label)


class RewardReply(_Wire):
    """What the client reads: scalars, because it puts each into a tensor of its own."""

    rewards: Number
    scores: Number
    extra_logs: dict[str, Number] = Field(default_factory=dict)


class GroupResponse(_Wire):
    """One response of a group, without the prompt."""

    text: StrictStr
    finished: StrictBool | None = Field(
        default=None, description="False where generation was cut off. Without it, read off the text's end."
    )


class GroupRequest(_Wire):
    """One prompt's whole group."""

    prompt: StrictStr
    responses: tuple[GroupResponse, ...] = Field(min_length=1)
    gold: StrictStr | None = Field(default=None, description="Read only by methods that learn from gold.")


class ScoreRequest(_Wire):
    """Whole groups, scored independently."""

    groups: tuple[GroupRequest, ...] = Field(min_length=1)


class GroupReply(_Wire):
    """A group's score; lists are one value per response, in order. u_x is already in the advantages."""

    answers: list[str | None]
    classes: list[int | None]
    majority_count: int
    penalized: bool
    rewards: list[Number]
    advantage_pos: list[Number]
    advantage_neg: list[Number]
    prompt_weight: Number
    kl_weight: Number


class ScoreReply(_Wire):
    """One reply per group, in order."""

    groups: list[GroupReply]


class Problem(_Wire):
    """Every reply that is not a success."""

    detail: str


class Health(_Wire):
    """What a probe asks."""

    status: str
