"""The folder of a run: its files and lock, its configuration, and how it ended."""

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, parse_kind
from restrain_openrlhf.config.documents import dump_yaml
from restrain_openrlhf.config.host_flags import Flags
from restrain_openrlhf.config.yaml_file import Key, RunConfig
from restrain_openrlhf.data.outputs import write_whole
from restrain_openrlhf.errors import ConfigError, DataError, RunError
from restrain_openrlhf.records.inputs import Content, contents, digests, refuse_changed

# Levels from a trained model up to its run: <run>/model, <run>/checkpoints/<one>, or an adaptation's <out>/train/.
LEVELS = 3
# Flags of OpenRLHF that change nothing that a run computes, so that a resumed run may change them.
CHANGEABLE_FLAGS = ("logger.", "ckpt.max_num", "ckpt.max_mem", "ckpt.save_steps")

# The block of run.json with the digests of the run's inputs (inputs.py).
CONTENTS = "contents"
# The base model's votes in a test-time adaptation, which are the reference of the training run inside its folder.
VOTES_BEFORE = "before.jsonl"


def adapts_at_test_time(config: RunConfig) -> bool:
    """Whether a configuration is that of the training run inside the folder of a test-time adaptation."""
    vote = config.reference
    return vote is not None and vote.name == VOTES_BEFORE and config.run_dir.is_relative_to(vote.parent)


class LabelledChoice(BaseModel, frozen=True):
    """The saved model with the highest pass@1 on the labels of the run's evaluation set; of several, the earliest.

    `interval` has the 95 % bounds of this evaluation alone, without the choice of the highest among several; None where
    the number of problems is not known. Step 0 is the base model.
    """

    step: int
    model: str
    pass_at_1: float
    interval: tuple[float, float] | None = None

    def __str__(self) -> str:
        bounds = " [{:.1%}, {:.1%}]".format(*self.interval) if self.interval else ""
        stands = f"the model of step {self.step}" if self.step else "the base model"
        found = f"pass@1 {self.pass_at_1:.1%}{bounds}"
        return f"By the labels of the evaluation set, the best saved model is {stands}: {found}."


class Completion(BaseModel, frozen=True):
    """How a run ended: after its last step, or earlier for the reason in `stopped`.

    The rest is what stop rules say (hook/launch/stop_rules.py). `alarm` is the rule that fired; an alarm in the last
    steps ends no run early. `unwatched` names signals that the host did not log, so that their rules had no effect.
    `chosen_model` is the last good model, of step `chosen_step`; step 0 is the base model, because no model was saved
    before the alarm. `by_labels` is what the evaluations during training say of the saved models.
    """

    steps: int
    stopped: str | None = None
    alarm: str | None = None
    unwatched: tuple[str, ...] = ()
    chosen_step: int | None = None
    chosen_model: str | None = None
    by_labels: LabelledChoice | None = None

    @property
    def ending(self) -> str | None:
        """Which rule fired, and which model is the last good one; None if no rule did."""
        if self.alarm is None:
            return None
        stands = f"the model of step {self.chosen_step}" if self.chosen_step else "the base model"
        ended = "ended training early" if self.stopped else "fired and did not end training"
        return f"A stop rule {ended}: {self.alarm}. The last good model is {stands}."


@dataclass(frozen=True)
class RunRecord:
    """What run.json says of a run of this configuration; `flags` are those of OpenRLHF that it sets."""

    config: RunConfig
    flags: Flags

    @property
    def settings(self) -> dict[str, Any]:
        """The whole method, all keys that are not at their default, and the flags, as JSON reads them."""
        return dict(json.loads(json.dumps({**self.config.written(), "openrlhf": self.flags}, default=str)))

    @cached_property
    def inputs(self) -> dict[str, Content]:
        """What the run is made from, read once; raises what `contents` raises."""
        return contents(self.config, self.flags)


class _PathInFolder:
    """A descriptor: the path of this name in a run's folder."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, folder: "RunFolder", _owner: type) -> Path:
        return folder.path / self.name


@dataclass(frozen=True)
class RunFolder:
    """Paths under a run's folder."""

    path: Path
    # The run as it was started: method, reference, every flag of OpenRLHF, and digests of its inputs.
    resolved = _PathInFolder("run.json")
    # The configuration that the hooked entry point reads.
    hook_config = _PathInFolder("hook.yaml")
    # One JSON line per training step.
    metrics = _PathInFolder("metrics.jsonl")
    # Everything that the host printed.
    log = _PathInFolder("train.log")
    # The trained model as a Hugging Face folder; a run that was stopped before its end has none.
    model = _PathInFolder("model")
    # With the key `weight_digests`, a JSON file for each vLLM engine about its last weight sync: for each worker of the
    # engine, an object with the SHA-256 of every weight (hook/rollout/samples.py).
    weight_digests = _PathInFolder("weight_digests")
    # The host's checkpoints; with `ckpt.save_hf`, also models as Hugging Face folders.
    checkpoints = _PathInFolder("checkpoints")
    # Exists once the run has ended without an error.
    completed = _PathInFolder("completed.json")

    @classmethod
    def holding(cls, model: str) -> "RunFolder | None":
        """The folder of the run that trained a model, or wrote it as a checkpoint; None if it is in no run's folder.

        Raises DataError if the folder's run.json cannot be read.
        """
        return next((run for run in map(cls, Path(model).absolute().parents[:LEVELS]) if run.flags()), None)

    def flags(self) -> dict[str, Any]:
        """The flags of OpenRLHF that the run was started with, from run.json; empty without one."""
        return dict(self.record().get("openrlhf") or {})

    def record(self) -> dict[str, Any]:
        """The content of run.json; empty if there is none. Raises DataError if it is not valid JSON."""
        try:
            text = self.resolved.read_text(encoding="utf-8") if self.resolved.exists() else "{}"
            return dict(json.loads(text))
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{self.resolved}: is not valid JSON of one object ({error}). Restore it from a copy."
            ) from None

    @property
    def kind(self) -> AnswerKind:
        """The kind of answer that the run votes on. Raises ConfigError if no such kind is installed."""
        block = self.record().get("answers")
        return parse_kind(block) if block else MATHEMATICS

    def claim(self, run: RunRecord) -> None:
        """Make the folder this run's; a completed run is not changed.

        Raises what `refuse_another` raises, and ConfigError for a run without rules that rules have ended.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self.refuse_another(run)
        if (ended := self.completion()) is not None:
            if ended.stopped is not None and not (run.config.stop and run.config.stop.ends):
                raise ConfigError(
                    f"{self.path}: stop rules ended this run after {ended.steps} steps ({ended.stopped}), and it "
                    "cannot be continued without them. Choose another folder for a new run, or give the rules again."
                )
            return
        record = {**run.settings, CONTENTS: digests(run.inputs)}
        write_whole(self.resolved, json.dumps(record, indent=2) + "\n")
        write_whole(self.hook_config, dump_yaml(run.config.written()))

    def refuse_another(self, run: RunRecord) -> None:
        """Raises RunError if the folder holds a run with another configuration or other inputs."""
        if not self.resolved.exists():
            return
        old = self.record()
        before = old.pop(CONTENTS, {})
        _refuse_difference(self, old, run.settings)
        refuse_changed(self.path, before, run.inputs)

    def lock(self) -> int:
        """A locked file descriptor. A child that inherits it holds the lock, too.

        Raises RunError if another process has it.
        """
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

    @property
    def trained(self) -> Path:
        """The model that the run gives: by its stop rules the last good one, or else that of its end."""
        completion = self.completion()
        chosen = completion.chosen_model if completion else None
        return Path(chosen) if chosen else self.model

    def mark_completed(self, completion: Completion) -> None:
        write_whole(self.completed, completion.model_dump_json() + "\n")

    def completion(self) -> Completion | None:
        """How the run ended; None if it has not ended. Raises RunError if the mark of completion is damaged."""
        if not self.completed.exists():
            return None
        try:
            return Completion.model_validate_json(self.completed.read_bytes())
        except ValidationError:
            raise RunError(
                f"{self.completed}: is damaged. Remove it, and run the command that trains again: it finishes the run."
            ) from None


def model_of(word: str) -> str:
    """The model that a word names: for the folder of a finished run, the one that the run gives."""
    run = RunFolder(Path(word))
    return str(run.trained) if run.completed.exists() else word


def _refuse_difference(folder: RunFolder, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
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


def _flat(resolved: Mapping[str, Any]) -> dict[str, Any]:
    blocks = {key: value if isinstance(value, dict) else {"": value} for key, value in resolved.items()}
    flat = {f"{block}.{key}".rstrip("."): value for block, keys in blocks.items() for key, value in keys.items()}
    # A switch of OpenRLHF that is off is as good as one that is not named.
    return {key: None if value is False and key.startswith("openrlhf.") else value for key, value in flat.items()}
