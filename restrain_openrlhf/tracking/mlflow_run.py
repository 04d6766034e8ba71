"""One run in MLflow: made once, gone on with by a resumed run, and never a reason for training to stop."""

import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.config.mlflow import MlflowSettings
from restrain_openrlhf.config.secrets import SECRET_FLAGS
from restrain_openrlhf.errors import ConfigError

# MLflow would try for minutes, and a step waits for it. Whoever sets these variables has the last word.
PATIENCE = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
# The most parameters of one request (mlflow/utils/validation.py).
PARAMETERS = 100
KEPT = "mlflow.json"


class KeptRun(BaseModel):
    """`mlflow.json` in the run's folder: the run that a resumed training goes on with."""

    model_config = ConfigDict(frozen=True)

    place: MlflowSettings
    run_id: str


@dataclass(frozen=True)
class Batch:
    """What one request brings: metrics of a step (time in milliseconds since the epoch), or parameters."""

    step: int = 0
    time: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass
class MlflowRun:
    """A MetricWriter. What the server does not take is kept here and brought again with the next row."""

    settings: MlflowSettings
    folder: Path
    _waiting: deque[Batch] = field(default_factory=deque)
    _run_id: str | None = None
    _failing: bool = False

    @property
    def name(self) -> str:
        """In MLflow. Runs of a study are called seed-42, and of test-time RL train: what they are of is above them."""
        return "/".join(self.folder.parts[-2:])

    @property
    def unsent(self) -> int:
        """Rows that MLflow lacks."""
        return sum(bool(batch.metrics) for batch in self._waiting)

    def write(self, step: int, row: Mapping[str, Any]) -> None:
        """Bring the row's finite numbers, and those that wait. A failure is told once, until it is over."""
        numbers = {metric_name(name): float(value) for name, value in row.items() if isinstance(value, int | float)}
        self._waiting.append(Batch(step, int(1000 * time.time()), numbers))
        try:
            self._bring()
        except Exception as error:  # noqa: BLE001 - the row is in metrics.jsonl; whatever it is, training goes on
            self._tell(error)
        else:
            self._tell(None)

    def _bring(self) -> None:
        client = client_of(self.settings)
        if self._run_id is None:
            self._open(client)
        while self._waiting:
            _log(client, str(self._run_id), self._waiting[0])
            self._waiting.popleft()

    def _open(self, client: Any) -> None:
        kept = kept_run(self.settings, self.folder)
        if kept is not None:
            client.update_run(kept.run_id, status="RUNNING")
            self._run_id = kept.run_id
            return
        found = client.get_experiment_by_name(self.settings.experiment)
        experiment = found.experiment_id if found else client.create_experiment(self.settings.experiment)
        run_id = client.create_run(experiment, run_name=self.name).info.run_id
        made = KeptRun(place=self.settings, run_id=run_id)
        (self.folder / KEPT).write_text(made.model_dump_json(indent=2) + "\n", encoding="utf-8")
        self._run_id = run_id
        self._waiting.extendleft(reversed(list(_parameter_batches(self.folder))))

    def _tell(self, error: Exception | None) -> None:
        if error is not None and not self._failing:
            say(
                f"MLflow at {self.settings.tracking_uri} did not take a row ({_short(error)}). Training goes on; every "
                f"row is in {self.folder}. The row is brought again after the next step."
            )
        if error is None and self._failing:
            say(f"MLflow at {self.settings.tracking_uri} answers again and has every row of this start.")
        self._failing = error is not None


def refuse_unusable(settings: MlflowSettings, folder: Path) -> None:
    """Before anything heavy starts: MLflow is installed, and answers. A resumed run only needs the first.

    Raises ConfigError saying what is missing.
    """
    try:
        client = client_of(settings)
        if kept_run(settings, folder) is None:
            client.search_experiments(max_results=1)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"mlflow: is set, and {error.name} is not installed. Install it: pip install 'restrain-openrlhf[mlflow]', "
            "on every Ray node."
        ) from None
    except Exception as error:
        raise ConfigError(
            f"mlflow.tracking_uri {settings.tracking_uri}: cannot be used ({_short(error)}). Correct it, start the "
            "server, or leave `mlflow:` out."
        ) from error


@contextmanager
def ending(settings: MlflowSettings | None, folder: Path) -> Iterator[None]:
    """Give MLflow's run the status with which the block ends: FINISHED, FAILED, or KILLED by Ctrl-C or SIGTERM."""
    status = "FAILED"
    try:
        yield
        status = "FINISHED"
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    finally:
        if settings is not None:
            _end(settings, folder, status)


def _end(settings: MlflowSettings, folder: Path, status: str) -> None:
    kept = kept_run(settings, folder)
    if kept is None:
        return
    try:
        client_of(settings).set_terminated(kept.run_id, status=status)
    except Exception as error:  # noqa: BLE001 - how training ended does not depend on it
        say(f"MLflow at {settings.tracking_uri} was not told that the run ended as {status} ({_short(error)}).")


def client_of(settings: MlflowSettings) -> Any:
    """MLflow's client of the place, which does not wait for long. Raises ModuleNotFoundError where it is missing."""
    for name, value in PATIENCE.items():
        os.environ.setdefault(name, value)
    from mlflow.tracking import MlflowClient  # noqa: PLC0415 - optional, and costs seconds

    return MlflowClient(settings.tracking_uri)


def kept_run(settings: MlflowSettings, folder: Path) -> KeptRun | None:
    """The run that an earlier start made in this place; None where there is none, or it is in another place."""
    path = folder / KEPT
    if not path.exists():
        return None
    kept = KeptRun.model_validate_json(path.read_text(encoding="utf-8"))
    return kept if kept.place == settings else None


def metric_name(name: str) -> str:
    """A name that MLflow takes: letters, digits, and the signs _ - . : / and space."""
    return "".join(sign if sign.isascii() and (sign.isalnum() or sign in "_-.:/ ") else "_" for sign in name).strip("/")


def say(text: str) -> None:
    """To the process' stderr, which is the run's log."""
    print(f"restrain: {text}", file=sys.stderr, flush=True)


def _log(client: Any, run_id: str, batch: Batch) -> None:
    from mlflow.entities import Metric, Param  # noqa: PLC0415 - see client_of

    metrics = [Metric(name, value, batch.time, batch.step) for name, value in batch.metrics.items()]
    client.log_batch(run_id, metrics, [Param(name, value) for name, value in batch.parameters.items()])


def _parameter_batches(folder: Path) -> Iterator[Batch]:
    """The resolved configuration, where `restrain train` has written it."""
    path = folder / "run.json"
    resolved = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    flat = {
        f"{block}.{key}": str(value)
        for block, keys in resolved.items()
        if isinstance(keys, dict)
        for key, value in keys.items()
        if value is not None and key not in SECRET_FLAGS
    }
    names = sorted(flat)
    for start in range(0, len(names), PARAMETERS):
        yield Batch(parameters={name: flat[name] for name in names[start : start + PARAMETERS]})


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
