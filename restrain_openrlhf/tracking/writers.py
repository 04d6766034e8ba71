"""What a run's numbers are written by: an interface, its file of JSON Lines, and which writers a run has."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from restrain_openrlhf.config.mlflow import MlflowSettings
from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.tracking.mlflow_run import MlflowRun


class MetricWriter(Protocol):
    """Takes the row of one step: numbers by their logged names (None: not finite), and maybe blocks of others."""

    def write(self, step: int, row: Mapping[str, Any]) -> None:
        """Write it. A resumed run may write a step again; the later row counts."""


@dataclass(frozen=True)
class JsonLines:
    """One JSON line per step, in order."""

    path: Path

    def write(self, step: int, row: Mapping[str, Any]) -> None:
        """Append it; rows of this step or later are of a run that was killed, and go."""
        text, lines = dump({"step": step, **row}), _lines(self.path)
        kept = [line for line in lines if _step_of(line) < step]
        if len(kept) == len(lines):
            with self.path.open("a", encoding="utf-8") as file:
                file.write(text)
            return
        partial = self.path.with_name(self.path.name + ".partial")
        partial.write_text("".join([*kept, text]), encoding="utf-8")
        partial.replace(self.path)


def write_row(file: Path, step: int, row: Mapping[str, Any], mlflow: MlflowSettings | None) -> None:
    """Hand the row to the run's writers: to `file` in the run's folder first, which nothing after it can take back."""
    writers: list[MetricWriter] = [JsonLines(file)]
    if mlflow is not None:
        writers.append(mlflow_run(mlflow, file.parent))
    for writer in writers:
        writer.write(step, row)


@cache
def mlflow_run(settings: MlflowSettings, folder: Path) -> MlflowRun:
    """The one of this process for the run in `folder`: it keeps what MLflow has not taken yet."""
    return MlflowRun(settings, folder)


def unsent(mlflow: MlflowSettings | None, metrics: Path | None) -> dict[str, float]:
    """How many rows MLflow lacks, among a step's numbers; nothing where it lacks none."""
    if mlflow is None or metrics is None:
        return {}
    count = mlflow_run(mlflow, metrics.parent).unsent
    return {UNSENT: float(count)} if count else {}


# A step's number under which it is seen that MLflow does not answer.
UNSENT = "restrain/mlflow_unsent_rows"


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []


def _step_of(line: str) -> float:
    """The step of a row; a line cut short by a kill counts as later than every step, so that it is dropped."""
    try:
        return float(json.loads(line)["step"])
    except json.JSONDecodeError:
        return float("inf")
