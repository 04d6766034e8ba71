"""The configuration file of a run: its typed keys and blocks, and loading it with `--set` on top."""

import hashlib
import re
from collections.abc import Mapping
from enum import Enum, auto
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    StrictBool,
    StrictInt,
    field_validator,
    model_validator,
)

from restrain_openrlhf.answers import MATHEMATICS, AnyKind
from restrain_openrlhf.config.documents import FLAGS, blocks, override, own_path, read_yaml, typed
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method import MethodSettings, build

# Far beyond what rounding in bf16 causes, even for a collapsing policy (docs/operations/running.md).
LOGPROB_GAP_LIMIT = 0.5
# Most rollouts: then the vote on most prompts is one of a few rollouts, and the prompts, their template, the kind of
# answer or the limit of tokens do not fit.
MISSING_LIMIT = 0.5
# The only flag that holds a secret.
SECRET_FLAG = "logger.wandb.key"
# OpenRLHF turns W&B on by a key alone, and prefers the real one in WANDB_API_KEY (openrlhf/utils/logging_utils.py).
DUMMY_KEY = "dummy"
HOME = re.compile(r"(?:^|(?<=,))~/")
MIB = 1 << 20
Count = Annotated[StrictInt, Field(ge=1)]
AbsolutePath = Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())]


class Block(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True):
    """A block of keys, each with its meaning below it."""


class EngineLimits(Block):
    """How much a vLLM engine works on at a time, by vLLM's own names. None leaves the limit to the run."""

    max_num_seqs: Count | None = None
    """Concurrent rollouts per engine; null: as many as it gets in a step, at least 128 and at most 512."""
    max_num_batched_tokens: Count | None = None
    """Tokens per vLLM step of an engine; null: 8192."""

    def options(self) -> dict[str, int]:
        """The limits that are set, by name."""
        return self.model_dump(exclude_none=True)


class KeepRollouts(Block):
    """Which of a step's groups are written to the run's `rollouts/`, and how much of the disk they may take."""

    keep: Literal["all", "none"] | Count = 8
    """Groups kept per step: a number (drawn at random by train.seed), all, or none."""
    at_most_mib: Count | None = 1024
    """Limit for all files together, in MiB. At the first step that would exceed it, keeping stops; null: no limit."""

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


class StopRules(Block):
    """Limits of signals that need no gold. A rule fires when its limit is passed in `patience` steps in a row."""

    kl: float = Field(0.15, gt=0, allow_inf_nan=True)
    """Limit of the mean KL to the base model over the tokens trained on (restrain/kl), in nats; .inf: none."""
    template: float = Field(0.4, gt=0, allow_inf_nan=True)
    """Limit of how much the share of prompts with the most common majority answer exceeds the base model's."""
    entropy: float = Field(0.1, gt=0, lt=1)
    """Lowest entropy of the policy, as a share of that in the first three steps."""
    patience: Annotated[int, Field(ge=1)] = 2
    """Steps in a row that must pass a limit."""
    ends: bool = True
    """Whether an alarm ends the run; false: it is only said."""


class Agent(Block):
    """The user's own agent, in a file that OpenRLHF can load, and where in its trajectories the final answers are.

    The path of the file can stand for the whole block.
    """

    path: AbsolutePath
    """The Python file with a class AgentExecutor, available on every node."""
    turns: Literal["last", "all"] = "last"
    """Which of the policy's turns contain the answer: the last one, or all of them in order."""
    tag: str | None = Field(default=None, pattern=r"^[\w-]+$")
    """Read only the content of the last <tag>...</tag> in these turns; null: the whole text."""
    trajectory_seconds: Annotated[float, Field(gt=0)] = 3600.0
    """Time limit of a trajectory, in seconds. One that takes longer has failed, as after an error of a tool."""

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


class Key(Enum):
    """Facts about a key, as part of its field's annotation."""

    # The agent also reads the key where OpenRLHF runs without our entry point.
    AGENT = auto()
    # The key changes nothing that a run computes, so a run may be continued with another value.
    CHANGEABLE = auto()


class HookConfig(BaseModel, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True):
    """The part of a configuration that the hook needs in all processes of a run."""

    method: Annotated[MethodSettings, Key.AGENT]
    """The method's name and its settings."""
    reference: Annotated[AbsolutePath | None, Key.AGENT] = None
    """The reference file of the offline pass, for methods that read one."""
    reference_n: Annotated[Count | None, Key.AGENT] = None
    """Rollouts per prompt in the reference; null: as many as in training."""
    reference_sampling: Annotated[Literal["same", "any"], Key.AGENT] = "same"
    """same: the reference must have been sampled as the run draws (temperature, top_p, new tokens); any: not
    checked."""
    missing_limit: Annotated[Annotated[float, Field(gt=0, le=1)] | None, Key.CHANGEABLE] = MISSING_LIMIT
    """Begin no training if more than this share of the reference's rollouts have no answer; null: whatever the
    share."""
    answers: Annotated[AnyKind, Key.AGENT] = MATHEMATICS
    """The kind of answer that the votes are about, and its settings."""
    answer_rows: Annotated[AbsolutePath | None, Key.AGENT] = None
    """Only for the agent without the hook: the training file, if the kind of answer reads columns of it. The hook
    gets them with the prompts."""
    agent: Annotated[Agent | None, Key.AGENT] = None
    """Your own OpenRLHF agent (turns, tools, environments) that draws the voting trajectories: its file, or a block;
    null: a single turn."""
    metrics: AbsolutePath | None = None
    """File that gets one JSON line per step. `restrain train` sets it itself."""
    steps: Count | None = None
    """End after this many steps (rollout batches), even if the episodes would give more."""
    seeded_rollouts: StrictBool = False
    """Give every rollout a seed, so that a resumed run on the same machine draws the same rollouts."""
    evaluate_first: StrictBool = False
    """Evaluate the base model before the first step, if eval.dataset is set."""
    logprob_gap_limit: Annotated[Annotated[float, Field(gt=0)] | None, Key.CHANGEABLE] = LOGPROB_GAP_LIMIT
    """Stop the run if vLLM's log-probabilities differ from the policy's by more than this share; null: never."""
    own_old_log_probs: Annotated[StrictBool, Key.CHANGEABLE] = False
    """Where a batch is one optimizer step, take the old policy's log-probabilities from the training step itself,
    instead of by a pass of their own."""
    weight_digests: Annotated[StrictBool, Key.CHANGEABLE] = False
    """After each weight sync, write SHA-256 digests of the weights that vLLM computes with."""
    engine: Annotated[EngineLimits, Key.CHANGEABLE] = EngineLimits()
    """Limits of each vLLM engine."""
    rollouts: Annotated[KeepRollouts, Key.CHANGEABLE] = KeepRollouts()
    """Which groups are kept for inspection. Training does not depend on it."""

    @classmethod
    def keys(cls, kind: Key) -> frozenset[str]:
        """The keys of this kind."""
        return frozenset(name for name, field in cls.model_fields.items() if kind in field.metadata)

    @property
    def read_reference(self) -> Path | None:
        """The reference if the method reads one. Presets of one folder share the key, whatever their method is."""
        return self.reference if build(self.method).needs_reference else None

    @property
    def agent_identity(self) -> str | None:
        """The identity of the agent that draws trajectories; None for a single turn. Raises ConfigError; see Agent."""
        return None if self.agent is None else self.agent.identity

    @property
    def keeps_rollouts(self) -> bool:
        """Whether the run keeps rollouts. They are kept beside the metrics, so a run without metrics keeps none."""
        return self.metrics is not None and self.rollouts.keep != "none"

    def written(self) -> dict[str, Any]:
        """What the hook needs, as plain data: the whole method, and all other keys that are not at their default."""
        changed = self.model_dump(mode="json", include=set(HookConfig.model_fields), exclude_defaults=True)
        answers = {"answers": self.answers.model_dump(mode="json")} if self.answers != MATHEMATICS else {}
        return {**changed, **answers, "method": self.method.model_dump(mode="json")}


class RunConfig(HookConfig):
    """A whole run: the method, a folder for everything it writes, and OpenRLHF's flags under their dotted names."""

    run_dir: AbsolutePath
    """Folder for checkpoints, metrics, logs and the trained model."""
    share_gpus: StrictBool = False
    """If this machine has fewer GPUs than the layout needs, put all models on the same GPUs."""
    deadline_days: Annotated[float, Field(gt=0)] | None = None
    """Kubernetes ends a try of the training job after so many days; null: after 14, and after 28 where KubeRay counts
    the wait for pods too."""
    pass_n: Count | None = None
    """Rollouts per prompt of the pass that `restrain k8s render` makes, if the reference is a subset of a larger pass
    that other runs share; null: as many as the reference has."""
    stop: StopRules | None = None
    """Rules that end the run without gold, and choose its last good model; null: none. They need ckpt.save_hf and
    ckpt.save_steps. Of the saved models, only the newest and the last good one are kept."""
    openrlhf: Mapping[str, Any] = Field(default_factory=dict)
    """OpenRLHF's own flags under their dotted names, such as actor.adam.lr."""

    @field_validator("openrlhf")
    @classmethod
    def _own_paths(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Flags without ~ in their paths, of which there may be several with commas; and our model where it is."""
        flags = {
            name: HOME.sub(f"{Path.home()}/", each) if isinstance(each, str) else each for name, each in given.items()
        }
        model = flags.get("actor.model_name_or_path")
        return {**flags, "actor.model_name_or_path": own_path(model)} if isinstance(model, str) else flags


def load_hook_config(path: Path) -> HookConfig:
    """Read a file with the keys of HookConfig. Raises ConfigError naming the file and the key."""
    return typed(HookConfig, blocks(read_yaml(path), path, HookConfig.model_fields), path)


def load_run_config(path: Path, overrides: Mapping[str, object] | None = None) -> RunConfig:
    """Read a run's file, with `--set` overrides on top (`method.kappa`, `openrlhf.actor.adam.lr`, `run_dir`).

    `metrics` defaults to metrics.jsonl in the run's folder. Raises ConfigError naming the file and the key, also for a
    secret among the flags.
    """
    given, keys = overrides or {}, [key for key in RunConfig.model_fields if key != "metrics"]
    document = read_yaml(path, {key.removeprefix(f"{FLAGS}."): value for key, value in given.items()})
    override(document, given, keys)
    config = typed(RunConfig, blocks(document, path, keys), path)
    if config.openrlhf.get(SECRET_FLAG) not in (None, "", DUMMY_KEY):
        raise ConfigError(
            f"{path}: openrlhf.{SECRET_FLAG} holds a key, which the list of processes and the run's files would show. "
            f"Set it to '{DUMMY_KEY}' and put the key into the environment, as WANDB_API_KEY: on Kubernetes in a "
            "Secret."
        )
    return config.model_copy(update={"metrics": config.run_dir / "metrics.jsonl"})
