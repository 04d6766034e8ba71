"""The `engine:` block: how much a vLLM engine works on at a time."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, StrictInt, model_validator

Count = Annotated[StrictInt, Field(ge=1)]


class EngineLimits(BaseModel):
    """vLLM's own options of these names; None leaves vLLM's choice."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_num_seqs: Count | None = Field(
        default=None,
        description="Rollouts that an engine works on at a time; null: as many as it has of a step, 128 to 512.",
    )
    max_num_batched_tokens: Count | None = Field(
        default=None, description="Tokens that an engine works on in one step of its own; null: 8192."
    )

    def options(self) -> dict[str, int]:
        """Those that are set, by name."""
        return self.model_dump(exclude_none=True)

    @model_validator(mode="after")
    def _tokens_for_all(self) -> Self:
        """vLLM refuses the same."""
        seqs, tokens = self.max_num_seqs, self.max_num_batched_tokens
        if seqs is not None and tokens is not None and tokens < seqs:
            raise ValueError(
                f"max_num_batched_tokens {tokens} is below max_num_seqs {seqs}: each rollout takes a token of a step. "
                "Raise the first or lower the second"
            )
        return self
