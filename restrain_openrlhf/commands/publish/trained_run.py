"""What is published of a run: its model, its resolved configuration, and of a test-time run what was adapted to."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from restrain_openrlhf.data.model_files import ADAPTER, ADAPTER_CONFIG, refuse_incomplete
from restrain_openrlhf.errors import ConfigError, RunError
from restrain_openrlhf.records.folder import VOTES_BEFORE, Completion, RunFolder


class Accuracy(BaseModel):
    """pass@1 in [0, 1] with its 95 % interval, and maj@n of n responses."""

    model_config = ConfigDict(frozen=True)

    pass_at_1: float
    low: float
    high: float
    majority: float
    n: int


class AdaptedScore(Accuracy):
    """One policy on one set, as `test-time adapt` keeps it."""

    policy: str
    benchmark: str
    problems: int


class Adapted(BaseModel):
    """What is read of the `result.json` that `test-time adapt` writes."""

    model_config = ConfigDict(frozen=True)

    name: str
    problems: int
    alarm: str | None
    chosen_step: int
    chosen_model: str
    scores: tuple[AdaptedScore, ...]


@dataclass(frozen=True)
class TrainedRun:
    """A run with a model. `resolved` is run.json; `adapted` is None for a training run."""

    path: Path
    training: RunFolder
    model: Path
    resolved: Mapping[str, Any]
    completion: Completion
    adapted: Adapted | None

    @property
    def name(self) -> str:
        """The folder's."""
        return self.path.name

    @property
    def method(self) -> Mapping[str, Any]:
        """The method's name and settings."""
        return dict(self.resolved["method"])

    def flag(self, name: str) -> Any:
        """One of OpenRLHF's flags; None where it is not set."""
        return self.resolved.get("openrlhf", {}).get(name)

    @property
    def has_adapter(self) -> bool:
        """Whether a LoRA adapter lies beside the whole model."""
        return (self.model / ADAPTER / ADAPTER_CONFIG).exists()


def find_run(path: Path) -> TrainedRun:
    """The run in a folder of `restrain train` or `test-time adapt`.

    Raises RunError for a folder of neither, a run that has not ended, and one whose model is the base model;
    ConfigError for weights that are not whole.
    """
    path = path.absolute()
    # By the base model's votes the folder of an adaptation is known; the demo's has none, and a train/ too.
    inside = path / "train"
    if path.name == inside.name and (path.parent / VOTES_BEFORE).exists():
        path, inside = path.parent, path
    adapts = (path / VOTES_BEFORE).exists()
    training = RunFolder(inside if inside.is_dir() else path)
    if not training.resolved.exists():
        raise RunError(f"{path}: holds no run. Give the folder of `restrain train`, or the --out of `test-time adapt`.")
    completion = training.completion()
    if completion is None:
        raise RunError(f"{path}: the run has not ended. Run its command again to finish it, then publish it.")
    resolved = json.loads(training.resolved.read_text(encoding="utf-8"))
    adapted = _adapted(path) if adapts else None
    model = training.model
    if adapted is not None and Path(adapted.chosen_model).name != model.name:
        # A folder that was moved or copied has the checkpoint that gave the answers in the same place.
        inside = training.checkpoints / Path(adapted.chosen_model).name
        model = inside if inside.exists() or not model.exists() else model
    if not model.is_dir():
        raise RunError(f"{model}: no such folder: the run has left no model. Train it to its end, then publish it.")
    try:
        refuse_incomplete(model)
    except ConfigError as error:
        adapter = model / ADAPTER
        hint = f" Write the whole model: restrain merge {adapter} --out DIR, and move its files to {model}."
        raise ConfigError(f"{error}{hint if (adapter / ADAPTER_CONFIG).exists() else ''}") from None
    return TrainedRun(path, training, model, resolved, completion, adapted)


def _adapted(path: Path) -> Adapted:
    result = path / "result.json"
    try:
        adapted = Adapted.model_validate_json(result.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{result}: no such file. Finish the adaptation: run its command again.") from None
    except ValidationError as error:
        raise RunError(f"{result}: is damaged ({error.errors()[0]['msg']}). Run the adaptation again.") from None
    if adapted.chosen_step == 0:
        raise RunError(
            f"{path}: training was stopped before a good model was saved ({adapted.alarm}), so its answers are the "
            "base model's, and there is nothing new to publish."
        )
    return adapted
