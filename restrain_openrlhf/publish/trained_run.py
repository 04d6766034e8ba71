"""What is published of a run: its model, its resolved configuration, and of a test-time run what was adapted to."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from restrain_openrlhf.errors import ConfigError, RunError
from restrain_openrlhf.model_files import ADAPTER, ADAPTER_CONFIG, refuse_incomplete
from restrain_openrlhf.run.folder import Completion, RunFolder

# By the base model's votes the folder of an adaptation is known; the demo's has none, and a train/ too.
VOTE_BEFORE = "before.jsonl"


class AdaptedScore(BaseModel):
    """One policy on one set, as `test-time adapt` keeps it."""

    model_config = ConfigDict(frozen=True)

    policy: str
    benchmark: str
    problems: int
    pass_at_1: float
    low: float
    high: float
    n: int
    majority: float


class Adapted(BaseModel):
    """What is read of the `result.json` that `test-time adapt` writes."""

    model_config = ConfigDict(frozen=True)

    name: str
    problems: int
    alarm: str | None
    ended_early: bool
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
    completion: Completion | None
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
    inside = path / "train"
    if path.name == inside.name and (path.parent / VOTE_BEFORE).exists():
        path, inside = path.parent, path
    adapts = (path / VOTE_BEFORE).exists()
    training = RunFolder(inside if inside.is_dir() else path)
    if not training.resolved.exists():
        raise RunError(f"{path}: holds no run. Give the folder of `restrain train`, or the --out of `test-time adapt`.")
    completion = training.completion()
    if completion is None:
        raise RunError(f"{path}: the run has not ended. Run its command again to finish it, then publish it.")
    adapted = _adapted(path) if adapts else None
    model = _chosen(training, adapted) if adapted else training.model
    _refuse_no_model(model)
    resolved = json.loads(training.resolved.read_text(encoding="utf-8"))
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


def _chosen(training: RunFolder, adapted: Adapted) -> Path:
    """The model that gave the answers; a folder that was moved or copied has it in the same place."""
    chosen = Path(adapted.chosen_model)
    places = (training.model, training.checkpoints / chosen.name) if chosen.name != "model" else (training.model,)
    return next((place for place in reversed(places) if place.exists()), places[-1])


def _refuse_no_model(model: Path) -> None:
    if not model.is_dir():
        raise RunError(f"{model}: no such folder: the run has left no model. Train it to its end, then publish it.")
    try:
        refuse_incomplete(model)
    except ConfigError as error:
        adapter = model / ADAPTER
        hint = f" Write the whole model: restrain merge {adapter} --out DIR, and move its files to {model}."
        raise ConfigError(f"{error}{hint if (adapter / ADAPTER_CONFIG).exists() else ''}") from None
