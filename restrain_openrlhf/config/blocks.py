"""Blocks of a configuration besides the method: `engine:`, `rollouts:` and `agent:`."""

import hashlib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictInt, field_validator, model_validator

from restrain_openrlhf.config.documents import dump_yaml
from restrain_openrlhf.errors import ConfigError

MIB = 1 << 20
Count = Annotated[StrictInt, Field(ge=1)]
AbsolutePath = Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())]


class EngineLimits(BaseModel):
    """How much a vLLM engine works on at a time, by vLLM's own names. None leaves the limit to the run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_num_seqs: Count | None = Field(
        default=None,
        description="Concurrent rollouts per engine; null: as many as it gets in a step, at least 128 and at most 512.",
    )
    max_num_batched_tokens: Count | None = Field(
        default=None, description="Tokens per vLLM step of an engine; null: 8192."
    )

    def options(self) -> dict[str, int]:
        """The limits that are set, by name."""
        return self.model_dump(exclude_none=True)


class KeepRollouts(BaseModel):
    """Which of a step's groups are written to the run's `rollouts/`, and how much of the disk they may take."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keep: Literal["all", "none"] | Count = Field(
        default=8, description="Groups kept per step: a number (drawn at random by train.seed), all, or none."
    )
    at_most_mib: Count | None = Field(
        default=1024,
        description=(
            "Limit for all files together, in MiB. A run that needs more leaves out steps, evenly; null: no limit."
        ),
    )

    def count(self, groups: int) -> int:
        if self.keep == "none":
            return 0
        return groups if self.keep == "all" else min(self.keep, groups)

    @property
    def most_bytes(self) -> float:
        return float("inf") if self.at_most_mib is None else float(self.at_most_mib * MIB)

    @field_validator("keep", mode="before")
    @classmethod
    def _words_or_a_number(cls, value: Any) -> Any:
        # pydantic would have an error message for each alternative; this gives one.
        if value in ("all", "none") or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
            return value
        raise ValueError("give a number of groups (1 or more), all, or none")


class Agent(BaseModel):
    """The user's own agent, in a file that OpenRLHF can load, and where in its trajectories the final answers are.

    The path of the file can stand for the whole block.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    path: AbsolutePath = Field(description="The Python file with a class AgentExecutor, available on every node.")
    turns: Literal["last", "all"] = Field(
        default="last",
        description="Which of the policy's turns contain the answer: the last one, or all of them in order.",
    )
    tag: str | None = Field(
        default=None,
        pattern=r"^[\w-]+$",
        description="Read only the content of the last <tag>...</tag> in these turns; null: the whole text.",
    )
    trajectory_seconds: Annotated[float, Field(gt=0)] = Field(
        default=3600.0,
        description=(
            "Time limit of a trajectory, in seconds. One that takes longer has failed, as after an error of a tool."
        ),
    )

    @model_validator(mode="before")
    @classmethod
    def _path_alone(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str | Path) else value

    @property
    def identity(self) -> str:
        """A text that is equal for two agents with the same file and the same reading.

        Raises ConfigError; see `text`.
        """
        changed = self.model_dump(exclude_defaults=True, exclude={"path", "trajectory_seconds"})
        digest = hashlib.sha256(self.text.encode()).hexdigest()[:16]
        return " ".join([self.path.name, digest, *(f"{name}={value!r}" for name, value in sorted(changed.items()))])

    @property
    def text(self) -> str:
        """The file's text. Raises ConfigError if it cannot be read."""
        try:
            return self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(f"agent: {self.path} cannot be read ({why}). Name the agent's Python file.") from None

    def word(self) -> str:
        """The option that `choose_agent` (config/command_line.py) reads: the path, or the block where more is set."""
        block = self.model_dump(mode="json", exclude_defaults=True)
        if set(block) == {"path"}:
            return str(self.path)
        return dump_yaml(block, default_flow_style=True, width=float("inf")).strip()
