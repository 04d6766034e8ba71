"""The `rollouts:` block: how many of a step's groups a run keeps, and how much of the disk they may take."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, field_validator

MIB = 1 << 20
Count = Annotated[StrictInt, Field(ge=1)]


class KeepRollouts(BaseModel):
    """Which groups are written to the run's `rollouts/` (restrain_openrlhf/kept/)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keep: Literal["all", "none"] | Count = Field(
        default=8, description="Groups kept of each step: a number, drawn at random by train.seed, or all, or none."
    )
    at_most_mib: Count | None = Field(
        default=1024,
        description="Keeping stops before its files take more than so many MiB, and the run goes on; null: no bound.",
    )

    def count(self, groups: int) -> int:
        """How many of a step's groups are kept."""
        if self.keep == "none":
            return 0
        return groups if self.keep == "all" else min(self.keep, groups)

    @property
    def most_bytes(self) -> float:
        """`at_most_mib` in bytes."""
        return float("inf") if self.at_most_mib is None else float(self.at_most_mib * MIB)

    @field_validator("keep", mode="before")
    @classmethod
    def _words_or_a_number(cls, value: Any) -> Any:
        # One message for the alternatives: pydantic has one for each.
        if value in ("all", "none") or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
            return value
        raise ValueError("give a number of groups (1 or more), all, or none")
