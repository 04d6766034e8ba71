"""A run's numbers in MLflow, sent from the files that the run writes: training does not wait for a server."""

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
from restrain_openrlhf.config.host_flags import SECRET_FLAGS
from restrain_openrlhf.data.jsonl import FollowedFile
from restrain_openrlhf.errors import ConfigError, reason_of
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.metrics import HELD_OUT_FILE

# MLflow would try for minutes, and reports its use as it is imported. Whoever sets these variables has the last word.
DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
# A server that did not answer is asked again after so long.
PAUSE_SECONDS = 60.0
# In the run's folder: the run that a resumed training goes on with, and the `mlflow:` block that it was made by.
KEPT = "mlflow.json"
FILES = ("metrics.jsonl", HELD_OUT_FILE)
# Among the numbers of a step that is reported: how many rows MLflow lacks because it does not answer.
UNSENT = "restrain/mlflow_unsent_rows"


@dataclass
class MlflowRun:
    """One run of MLflow. `waiting` are the metrics that it lacks, row by row.

    `seen` has the hashes of the rows that it has or that wait: a file that a resumed run replaced is read again.
    """

    place: MlflowSettings
    folder: Path
    run_id: str
    seen: set[int] = field(default_factory=set)
    waiting: list[list[Any]] = field(default_factory=list)
    silent_until: float = 0.0
    _files: list[FollowedFile] = field(init=False)

    def __post_init__(self) -> None:
        self._files = [FollowedFile(self.folder / name) for name in FILES]

    def send_new(self) -> int:
        """Send the rows that were written since; returns how many MLflow lacks because it does not answer."""
        self.waiting += [_metrics(json.loads(line)) for line in self._unseen()]
        if time.monotonic() >= self.silent_until:
            while self.waiting and self.ask(lambda client: client.log_batch(self.run_id, self.waiting[0])):
                self.waiting.pop(0)
        return len(self.waiting)

    def pass_over(self) -> None:
        """What is written by now is not sent: an earlier start has sent it."""
        deque(self._unseen(), maxlen=0)

    def _unseen(self) -> Iterator[str]:
        for line in (line for file in self._files for line in file.new_lines()):
            if hash(line) not in self.seen:
                self.seen.add(hash(line))
                yield line

    def ask(self, request: Callable[[Any], object]) -> bool:
        """Whether MLflow took the request. That it does not answer is told once, until it answers again."""
        was_silent, self.silent_until = self.silent_until > 0, 0.0
        try:
            request(client_of(self.place))
        except Exception as error:  # noqa: BLE001 - the rows are in their files; whatever it is, training goes on
            self.silent_until = time.monotonic() + PAUSE_SECONDS
            if not was_silent:
                self._say(
                    f"does not answer ({reason_of(error)}). Training goes on; every row is in {self.folder}, and is "
                    "sent once MLflow answers."
                )
            return False
        if was_silent:
            self._say("answers again.")
        return True

    def end(self, status: str) -> None:
        """Send what is left, and say how the run ended. Where that fails it is told, and changes nothing else."""
        self.silent_until = min(self.silent_until, time.monotonic())
        if self.send_new() or not self.ask(lambda client: client.set_terminated(self.run_id, status=status)):
            self._say(
                f"was not told that the run ended as {status}, and lacks {len(self.waiting)} rows. They are in "
                f"{self.folder}."
            )

    def _say(self, what: str) -> None:
        print(f"restrain: MLflow at {self.place.tracking_uri} {what}", file=sys.stderr, flush=True)


@contextmanager
def tracked(place: MlflowSettings | None, folder: Path) -> Iterator[Callable[[], int]]:
    """Gives what sends the run's new rows and counts those that MLflow lacks; at the end MLflow is told how it ended.

    The run's status is FINISHED, FAILED, or KILLED by Ctrl-C or SIGTERM. Raises ConfigError where MLflow is not
    installed, and for a new run where it does not answer; a resumed run goes on in its run there, answering or not.
    """
    if place is None:
        yield lambda: 0
        return
    run, status = _opened(place, folder), "FAILED"
    try:
        yield run.send_new
        status = "FINISHED"
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    finally:
        run.end(status)


def _opened(place: MlflowSettings, folder: Path) -> MlflowRun:
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    try:
        import mlflow.tracking  # noqa: F401, PLC0415 - optional, and costs seconds
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"mlflow: is set, and {error.name} is not installed. Install it: pip install 'restrain-openrlhf[mlflow]'."
        ) from None
    kept = json.loads((folder / KEPT).read_text(encoding="utf-8")) if (folder / KEPT).exists() else {}
    if kept.get("place") == place.model_dump():
        run = MlflowRun(place, folder, kept["run_id"])
        run.pass_over()
        run.ask(lambda client: client.update_run(run.run_id, status="RUNNING"))
        return run
    try:
        run_id = _made(place, folder)
    except Exception as error:
        raise ConfigError(
            f"mlflow.tracking_uri {place.tracking_uri}: cannot be used ({reason_of(error)}). Correct it, start the "
            "server, or leave `mlflow:` out."
        ) from error
    made = {"place": place.model_dump(), "run_id": run_id}
    (folder / KEPT).write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    return MlflowRun(place, folder, run_id)


def _made(place: MlflowSettings, folder: Path) -> str:
    from mlflow.entities import Param  # noqa: PLC0415 - see _opened

    client = client_of(place)
    found = client.get_experiment_by_name(place.experiment)
    experiment = found.experiment_id if found else client.create_experiment(place.experiment)
    # Runs of a study are called seed-42, and of test-time RL train: what they are of is above them.
    run_id = str(client.create_run(experiment, run_name="/".join(folder.parts[-2:])).info.run_id)
    client.log_batch(run_id, params=[Param(name, value) for name, value in _settings(folder).items()])
    return run_id


def client_of(place: MlflowSettings) -> Any:
    """MLflow's client of the place."""
    from mlflow.tracking import MlflowClient  # noqa: PLC0415 - see _opened

    return MlflowClient(place.tracking_uri)


def _metrics(row: dict[str, Any]) -> list[Any]:
    """The row's numbers; one that was not finite is null in it, and blocks of others are no numbers."""
    from mlflow.entities import Metric  # noqa: PLC0415 - see _opened

    step, now = row.pop("step"), int(1000 * time.time())
    numbers = {name: float(value) for name, value in row.items() if isinstance(value, int | float)}
    return [Metric(metric_name(name), value, now, step) for name, value in numbers.items()]


def _settings(folder: Path) -> dict[str, str]:
    """The resolved configuration by `block.key`."""
    blocks = {block: keys for block, keys in RunFolder(folder).record().items() if isinstance(keys, dict)}
    return {
        f"{block}.{key}": str(value)
        for block, keys in blocks.items()
        for key, value in keys.items()
        if value is not None and key not in SECRET_FLAGS
    }


def metric_name(name: str) -> str:
    """A name that MLflow takes: letters, digits, and the signs _ - . : / and space."""
    return re.sub(r"[^A-Za-z0-9_\-.:/ ]", "_", name).strip("/")
