"""A run's folder: its files, its lock, the configuration it belongs to, and how the run ended."""

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, parse_kind
from restrain_openrlhf.config.yaml_file import Key, RunConfig
from restrain_openrlhf.data.outputs import whole_file
from restrain_openrlhf.errors import DataError, RunError
from restrain_openrlhf.records.contents import Content, contents, digests, refuse_changed

# OpenRLHF's flags that change nothing a run computes; beside the configuration's own keys of this kind.
CHANGEABLE_FLAGS = ("logger.", "ckpt.max_num", "ckpt.max_mem", "ckpt.save_steps")

# The block of run.json with the digests of what the run is made from (records/contents.py).
CONTENTS = "contents"
# The base model's votes on the problems of a test-time adaptation: the reference of the training run inside its folder.
VOTES_BEFORE = "before.jsonl"


def adapts_at_test_time(config: RunConfig) -> bool:
    """Whether a configuration is of the training run inside a test-time adaptation's folder."""
    vote = config.reference
    return vote is not None and vote.name == VOTES_BEFORE and config.run_dir.is_relative_to(vote.parent)


class Completion(BaseModel):
    """How a run ended: after its last step, or earlier for the reason in `stopped`."""

    model_config = ConfigDict(frozen=True)

    steps: int
    stopped: str | None = None


class _Below:
    """A path of this name in a run's folder."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, folder: "RunFolder", _owner: type) -> Path:
        return folder.path / self.name


@dataclass(frozen=True)
class RunFolder:
    """Paths under a run's folder."""

    path: Path
    # The run as it was started: method, reference, every flag of OpenRLHF, and digests of what it is made from.
    resolved = _Below("run.json")
    # What the hooked entry point reads.
    hook_config = _Below("hook.yaml")
    # One JSON line per optimizer step's rollout batch.
    metrics = _Below("metrics.jsonl")
    # Everything the host printed.
    log = _Below("train.log")
    # The trained model, a Hugging Face folder; a run that was stopped before its end has none.
    model = _Below("model")
    # With the key of this name, a JSON file for each vLLM engine, of its last weight sync: for each of its workers an
    # object with the SHA-256 of every weight (hook/rollout/held_weights.py).
    weight_digests = _Below("weight_digests")
    # The host's checkpoints; with `ckpt.save_hf`, models that can be loaded as they are beside them.
    checkpoints = _Below("checkpoints")
    # Exists once the run has ended without an error.
    completed = _Below("completed.json")

    def flags(self) -> dict[str, Any]:
        """OpenRLHF's flags that the run was started with; none where nothing says so (run.json)."""
        return dict(self.record().get("openrlhf") or {})

    def record(self) -> dict[str, Any]:
        """What run.json says; nothing where it is not there. Raises DataError where it cannot be read."""
        try:
            text = self.resolved.read_text(encoding="utf-8") if self.resolved.exists() else "{}"
            return dict(json.loads(text))
        except ValueError as error:
            raise DataError(f"{self.resolved}: is not valid JSON ({error}). Restore it from a copy.") from None

    @property
    def kind(self) -> AnswerKind:
        """The kind of answer that the run votes on. Raises ConfigError where no such kind is installed."""
        block = self.record().get("answers")
        return parse_kind(block) if block else MATHEMATICS

    def claim(self, config: RunConfig, flags: dict[str, object]) -> None:
        """Make the folder this run's; a completed run stays as it is. Raises as `refuse_another`."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.refuse_another(config, flags)
        if self.completed.exists():
            return
        resolved = {**_resolved(config, flags), CONTENTS: digests(_contents(config, flags))}
        with whole_file(self.resolved) as file:
            file.write(json.dumps(resolved, indent=2) + "\n")
        self.hook_config.write_text(yaml.safe_dump(config.written()), encoding="utf-8")

    def refuse_another(self, config: RunConfig, flags: dict[str, object]) -> None:
        """Raises RunError where the folder is of a run with another configuration, or made from other content."""
        if not self.resolved.exists():
            return
        old = self.record()
        before = old.pop(CONTENTS, {})
        _refuse_difference(self, old, _resolved(config, flags))
        refuse_changed(self.path, before, _contents(config, flags))

    def lock(self) -> int:
        """A locked file descriptor; a child that inherits it holds the lock too. Raises RunError if it is taken."""
        self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise RunError(
                f"{self.path}: another process is training in this folder. Wait for it to end, stop it, or choose "
                "another run_dir."
            ) from None
        return descriptor

    def mark_completed(self, completion: Completion) -> None:
        """Write the mark, as the last file of a run."""
        self.completed.write_text(completion.model_dump_json() + "\n", encoding="utf-8")

    def completion(self) -> Completion | None:
        """How the run ended; None while it has not."""
        if not self.completed.exists():
            return None
        return Completion.model_validate_json(self.completed.read_text(encoding="utf-8"))


def _resolved(config: RunConfig, flags: dict[str, object]) -> dict[str, Any]:
    resolved: dict[str, Any] = json.loads(json.dumps({**config.written(), "openrlhf": flags}, default=str))
    return resolved


def _contents(config: RunConfig, flags: dict[str, object]) -> dict[str, Content]:
    return contents(flags, config.answers, config.reference, config.agent)


def _refuse_difference(folder: RunFolder, old: dict[str, Any], new: dict[str, Any]) -> None:
    before, now = _flat(old), _flat(new)
    for key in sorted({*before, *now}):
        if before.get(key) != now.get(key) and not _is_changeable(key):
            raise RunError(
                f"{folder.path} holds a run with {key} = {before.get(key)!r}, but this run has {now.get(key)!r}. "
                "Choose another run_dir, or remove the folder to start again."
            )


def _is_changeable(key: str) -> bool:
    block, _, flag = key.partition(".")
    return flag.startswith(CHANGEABLE_FLAGS) if block == "openrlhf" else block in RunConfig.keys(Key.CHANGEABLE)


def _flat(resolved: dict[str, Any]) -> dict[str, Any]:
    blocks = {key: value if isinstance(value, dict) else {"": value} for key, value in resolved.items()}
    return {f"{block}.{key}".rstrip("."): value for block, keys in blocks.items() for key, value in keys.items()}
