"""What is published of a run: its model, and its resolved configuration."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from restrain_openrlhf.data.model_files import ADAPTER, ADAPTER_CONFIG, refuse_incomplete
from restrain_openrlhf.errors import ConfigError, RunError
from restrain_openrlhf.records.folder import VOTES_BEFORE, Completion, RunFolder


@dataclass(frozen=True)
class TrainedRun:
    """A run that has ended, with its whole model. `resolved` is run.json."""

    folder: RunFolder
    resolved: Mapping[str, Any]
    completion: Completion

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self.folder.path

    @property
    def model(self) -> Path:
        """The model's folder."""
        return self.folder.model

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
    """The run in a folder of `restrain train`.

    Raises RunError for another folder, a run that has not ended, and one of `test-time adapt`, whose last model is not
    always the one that gave its answers; ConfigError for weights that are not whole.
    """
    folder = RunFolder(path.absolute())
    adaptation = folder.path.parent if folder.path.name == "train" else folder.path
    if (adaptation / VOTES_BEFORE).exists():
        raise RunError(
            f"{path}: is of `test-time adapt`. The model that gave its answers is `chosen_model` in result.json; push "
            "that folder with `hf upload`."
        )
    if not folder.resolved.exists():
        raise RunError(f"{path}: holds no run. Give the folder of `restrain train`.")
    completion = folder.completion()
    if completion is None:
        raise RunError(f"{path}: the run has not ended. Run its command again to finish it, then publish it.")
    run = TrainedRun(folder, json.loads(folder.resolved.read_text(encoding="utf-8")), completion)
    if not run.model.is_dir():
        raise RunError(f"{run.model}: no such folder: the run has left no model. Train it to its end, then publish it.")
    try:
        refuse_incomplete(run.model)
    except ConfigError as error:
        adapter = run.model / ADAPTER
        hint = f" Write the whole model: restrain merge {adapter} --out DIR, and move its files to {run.model}."
        raise ConfigError(f"{error}{hint if run.has_adapter else ''}") from None
    return run
