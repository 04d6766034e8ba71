"""Sends the numbers of a run to MLflow, from the files that the run writes, in MLflow's own thread."""

import json
import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from restrain_openrlhf.config.blocks import MlflowSettings
from restrain_openrlhf.data.jsonl import FollowedFile
from restrain_openrlhf.data.outputs import write_whole
from restrain_openrlhf.errors import ConfigError, reason_of
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.metrics import HELD_OUT_FILE

# By default MLflow retries for minutes, and reports its use when it is imported. Variables that the user sets win.
DEFAULTS = {
    # Pauses of 2, 4, 8, 16 and 32 seconds: a row survives if the server is away for a minute.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "5",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
# The file in the run's folder that names the MLflow run, for a resumed training, and its `mlflow:` block.
RUN_RECORD = "mlflow.json"
FILES = ("metrics.jsonl", HELD_OUT_FILE)


@dataclass
class MlflowRun:
    """One run of MLflow. `sending` has a handle for each row that MLflow was given.

    `seen` has the hashes of these rows, because a file that a resumed run has replaced is read again.
    """

    client: Any
    run_id: str
    folder: Path
    seen: set[int] = field(default_factory=set)
    sending: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._files = [FollowedFile(self.folder / name) for name in FILES]

    def send_new(self) -> None:
        """Give MLflow the rows that were written since the last call, without waiting for it."""
        for line in self.unseen():
            self.sending.append(self.client.log_batch(self.run_id, _metrics(json.loads(line)), synchronous=False))

    def unseen(self) -> Iterator[str]:
        """The rows that were written since the last call."""
        for line in (line for file in self._files for line in file.new_lines()):
            if hash(line) not in self.seen:
                self.seen.add(hash(line))
                yield line

    def end(self, status: str) -> None:
        """Wait for all rows, and tell MLflow how the run ended. A failure is only printed."""
        self.send_new()
        failures = [reason for each in self.sending if (reason := _failure_of(each.wait))]
        status_failure = _failure_of(lambda: self.client.set_terminated(self.run_id, status=status))
        if failures or status_failure:
            print(
                f"restrain: MLflow at {self.client.tracking_uri} is missing {len(failures)} rows of this run, which "
                f"ended as {status} ({[*failures, status_failure][0]}). The rows are in {self.folder}.",
                file=sys.stderr,
                flush=True,
            )


def _failure_of(request: Callable[[], object]) -> str | None:
    """Why MLflow did not take a request; None if it did."""
    try:
        request()
    except Exception as error:  # noqa: BLE001 - the rows are in their files; whatever it is, training goes on
        return reason_of(error)
    return None


@contextmanager
def tracked(place: MlflowSettings | None, folder: Path) -> Iterator[Callable[[], None]]:
    """Yields a function that sends new rows; at the end of the block, MLflow is told how the run ended.

    The status is FINISHED, FAILED, or after Ctrl-C or SIGTERM KILLED. Raises ConfigError if MLflow is not installed,
    and for a new run where MLflow does not answer. A resumed run continues its MLflow run even if MLflow does not
    answer.
    """
    if place is None:
        yield lambda: None
        return
    run, status = _open_run(place, folder), "FAILED"
    try:
        yield run.send_new
        status = "FINISHED"
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    finally:
        run.end(status)


def _open_run(place: MlflowSettings, folder: Path) -> MlflowRun:
    """The run of MLflow for a run's folder: the one that an earlier start has made there, or a new one."""
    earlier = json.loads((folder / RUN_RECORD).read_text(encoding="utf-8")) if (folder / RUN_RECORD).exists() else {}
    resumes = earlier.get("place") == place.model_dump()
    client_class = _client_class()
    try:
        client = client_class(place.tracking_uri)
        run_id = earlier["run_id"] if resumes else _create_run(client, place, folder)
    except Exception as error:
        raise ConfigError(
            f"mlflow.tracking_uri {place.tracking_uri}: cannot be used ({reason_of(error)}). Correct it, start the "
            "server, or leave `mlflow:` out."
        ) from error
    run = MlflowRun(client, run_id, folder)
    if resumes:
        # Rows that exist by now were sent by an earlier start.
        deque(run.unseen(), maxlen=0)
        _failure_of(lambda: client.update_run(run_id, status="RUNNING"))
    record = {"place": place.model_dump(), "run_id": run_id}
    write_whole(folder / RUN_RECORD, json.dumps(record, indent=2) + "\n")
    return run


def _client_class() -> Any:
    """MlflowClient, imported with our defaults. Raises ConfigError if MLflow is not installed."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    try:
        from mlflow.tracking import MlflowClient  # noqa: PLC0415 - optional, and costs seconds
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"`mlflow:` is set, but {error.name} is not installed. Install it: pip install 'restrain-openrlhf[mlflow]'."
        ) from None
    return MlflowClient


def _create_run(client: Any, place: MlflowSettings, folder: Path) -> str:
    from mlflow.entities import Param  # noqa: PLC0415 - see _client_class

    found = client.get_experiment_by_name(place.experiment)
    experiment = found.experiment_id if found else client.create_experiment(place.experiment)
    # The folders of runs are often called seed-42 (in a study) or train (in test-time RL), so include the folder above.
    run_id = str(client.create_run(experiment, run_name="/".join(folder.parts[-2:])).info.run_id)
    client.log_batch(run_id, params=[Param(name, value) for name, value in _settings(folder).items()])
    return run_id


def _metrics(row: dict[str, Any]) -> list[Any]:
    """The numbers of a row as MLflow metrics. Null, for numbers that were not finite, and blocks are left out."""
    from mlflow.entities import Metric  # noqa: PLC0415 - see _client_class

    step, now = row.pop("step"), int(1000 * time.time())
    numbers = {name: float(value) for name, value in row.items() if isinstance(value, int | float)}
    return [Metric(metric_name(name), value, now, step) for name, value in numbers.items()]


def _settings(folder: Path) -> dict[str, str]:
    """The settings of the run by `block.key`, without secrets."""
    blocks = {block: keys for block, keys in RunFolder(folder).record().items() if isinstance(keys, dict)}
    return {
        f"{block}.{key}": str(value)
        for block, keys in blocks.items()
        for key, value in keys.items()
        if value is not None
    }


def metric_name(name: str) -> str:
    """The name with only the characters that MLflow allows: letters, digits, _ - . : / and space."""
    return re.sub(r"[^A-Za-z0-9_\-.:/ ]", "_", name).strip("/")
