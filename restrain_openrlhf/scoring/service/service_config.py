"""The configuration of `restrain serve`: the method, how rollouts are gathered, limits of requests, the token."""

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from restrain_openrlhf.answers import MATHEMATICS, AnyKind
from restrain_openrlhf.config.documents import blocks, read_yaml, typed
from restrain_openrlhf.config.yaml_file import Block
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method import MethodSettings, build
from restrain_openrlhf.scoring.library import refuse_unserved

TOKEN_VARIABLE = "RESTRAIN_TOKEN"
MIN_TOKEN_LENGTH = 16
# Every response ends with the empty text.
EndText = Annotated[str, Field(min_length=1)]


class Timing(Block, strict=True):
    """Times in seconds. OpenRLHF's client (openrlhf/utils/agent.py) makes five tries of 180 s, one second apart.

    `hold` is below 180, so that the service ends a try and not a dead socket. `deadline` is below the sum of all tries.
    """

    hold: float = Field(170.0, gt=0, lt=180)
    """Seconds that a request waits. Then its client is told to ask again."""
    deadline: float = Field(800.0, gt=0, lt=904)
    """Seconds after which an incomplete group is scored as it is."""
    retake: float = Field(15.0, gt=1)
    """Seconds that the slot of a disconnected client waits for its next try."""
    keep: float = Field(900.0, gt=0)
    """Seconds during which late rollouts of an ended group get reward 0."""
    body: float = Field(30.0, gt=0)
    """Longest wait for a request's body, in seconds."""
    drain: float = Field(30.0, ge=0)
    """Seconds after SIGTERM that open requests have to complete."""


class RequestLimits(Block, strict=True):
    """Counts and bytes beyond which a request is refused."""

    pending: int = Field(32_768, ge=1)
    """Most requests that may wait at the same time."""
    body_bytes: int = Field(16 * 2**20, ge=1024)
    """Largest body of a request, in bytes."""


class ServiceBlock(Block):
    """The `service:` block."""

    group_size: int = Field(strict=True, ge=2, le=4096)
    """Rollouts per group: the trainer's rollout.n_samples_per_prompt."""
    end_of_text: EndText | tuple[EndText, ...]
    """The texts that end a finished response, such as <|im_end|>; []: truncation cannot be detected."""
    model: str | None = None
    """The trained model (a folder or hub id). The reference must have been made with it; null: not checked."""
    temperature: float = Field(1.0, strict=True, ge=0)
    """The trainer's rollout.temperature."""
    top_p: float = Field(1.0, strict=True, ge=0, le=1)
    """The trainer's rollout.top_p."""
    max_new_tokens: int | None = Field(None, strict=True, ge=1)
    """The trainer's rollout.max_new_tokens; null: not checked."""
    timing: Timing = Timing()
    limits: RequestLimits = RequestLimits()


class ServiceConfig(Block):
    """A whole configuration file of `restrain serve`."""

    method: MethodSettings
    """The method's name and its settings."""
    answers: AnyKind = MATHEMATICS
    """The kind of answer that the votes are about, and its settings."""
    answer_rows: Path | None = None
    """The training file, if the kind of answer reads columns that requests do not contain."""
    reference: Path | None = None
    """The reference file of the offline pass, for methods that read one."""
    reference_n: int | None = Field(None, strict=True, ge=1)
    """Rollouts per prompt in the reference; null: group_size."""
    reference_sampling: Literal["same", "any"] = "same"
    """same: the reference must have service.temperature, top_p and max_new_tokens; any: not checked."""
    service: ServiceBlock


def load_service_config(path: Path) -> ServiceConfig:
    """The configuration in a YAML file. Raises ConfigError naming the file and the key."""
    document = blocks(read_yaml(path), path, ServiceConfig.model_fields)
    config = typed(ServiceConfig, {**document, "service": document.get("service") or {}}, path)
    refuse_unserved(build(config.method), config.service.group_size, "a service")
    return config


def load_token(file: Path | None) -> str | None:
    """The token, from --token-file or from RESTRAIN_TOKEN; else None.

    Raises ConfigError for a file that cannot be read, and for a token that is too short or not printable ASCII.
    """
    source = f"--token-file {file}" if file else TOKEN_VARIABLE
    try:
        token = file.read_text(encoding="utf-8") if file else os.environ.get(TOKEN_VARIABLE)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source}: cannot be read ({error}).") from None
    token = None if token is None else token.strip()
    if token is not None and (len(token) < MIN_TOKEN_LENGTH or not token.isascii() or not token.isprintable()):
        raise ConfigError(
            f"{source}: the token has {len(token)} characters; it needs {MIN_TOKEN_LENGTH} or more, printable ASCII. "
            'Make one with: python -c "import secrets; print(secrets.token_urlsafe(32))"'
        )
    return token
