"""What the reward service is told: the method, how large a group is, how a finished response ends, and its limits."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from restrain_openrlhf.config.yaml_file import blocks, read_yaml
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method import MethodSettings, build
from restrain_openrlhf.reward.servable import refuse_unservable

# OpenRLHF's client (openrlhf/utils/agent.py): five tries of 180 s, one second apart.
CLIENT_TRY_SECONDS = 180.0
CLIENT_PATIENCE_SECONDS = 5 * CLIENT_TRY_SECONDS + 4


class _Block(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Timing(_Block):
    """Seconds. `hold` is below the client's own time limit, so that the service and not a dead socket ends a try."""

    hold: float = Field(default=170.0, gt=0, lt=CLIENT_TRY_SECONDS)
    deadline: float = Field(default=800.0, gt=0, lt=CLIENT_PATIENCE_SECONDS)
    retake: float = Field(default=15.0, gt=1)
    keep: float = Field(default=900.0, gt=0)
    admission: float = Field(default=60.0, ge=0)
    # Long, because one busy client process may open thousands of connections before it gets to write.
    head: float = Field(default=120.0, gt=0)
    body: float = Field(default=30.0, gt=0)
    drain: float = Field(default=30.0, ge=0)
    drain_notice: float = Field(default=5.0, ge=0)
    # Far longer than one turn of the loop takes with all requests there are: what counts as dead is killed.
    stall: float = Field(default=60.0, gt=0)


class Limits(_Block):
    """Counts and bytes beyond which a request is refused, or has to queue."""

    pending: int = Field(default=32_768, ge=1)
    body_bytes: int = Field(default=4 * 2**20, ge=1024)
    groups: int = Field(default=256, ge=1)
    responses: int = Field(default=1024, ge=2)
    scoring_threads: int = Field(default=4, ge=1)


class ServiceBlock(_Block):
    """The `service:` block. `model` (a Hugging Face folder) or `end_of_text` says how a finished response ends."""

    group_size: int = Field(ge=2, le=4096)
    model: Path | None = None
    end_of_text: tuple[str, ...] | None = None
    labelled_rows: Literal["evaluate", "vote"] = "evaluate"
    stragglers: Literal["score", "neutral"] = "score"
    reward: Literal["net_advantage", "expected"] = "net_advantage"
    log_text: bool = False
    timing: Timing = Timing()
    limits: Limits = Limits()

    @field_validator("end_of_text", mode="before")
    @classmethod
    def _one_text(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _ends_are_known(self) -> "ServiceBlock":
        if (self.model is None) == (self.end_of_text is None):
            raise ValueError(
                "give either model (the folder of the trained model) or end_of_text (the texts that end a finished "
                "response, such as <|im_end|>; [] if truncation cannot be seen)"
            )
        return self


class ServiceConfig(BaseModel):
    """A whole configuration file of `restrain serve`."""

    model_config = ConfigDict(frozen=True)

    method: MethodSettings
    reference: Path | None = None
    service: ServiceBlock


def load_service_config(path: Path) -> ServiceConfig:
    """A file with `method:`, `reference:` and `service:`. Raises ConfigError naming the file and the key."""
    document = blocks(read_yaml(path), path, ("method", "reference", "service"))
    try:
        refuse_unservable(build(document["method"]))
        block = ServiceBlock.model_validate(document.get("service"))
        return ServiceConfig(**{**document, "service": block})
    except ValidationError as error:
        raise ConfigError(f"{path}: service: {_first(error)}") from None


def _first(error: ValidationError) -> str:
    detail: Any = error.errors()[0]
    where = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "model_type":
        return "the block is missing or empty. It needs at least group_size, and model or end_of_text."
    return f"{where}: {detail['msg']}" if where else str(detail["msg"])
