"""A process that does one of these things with a real MLflow, and prints what its store has then.

MLflow is not in the tests' own environment (requirements/mlflow.txt), so that only such a process imports it.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from restrain_openrlhf.config.mlflow import MlflowSettings
from restrain_openrlhf.tracking import mlflow_run
from restrain_openrlhf.tracking.writers import unsent, write_row

FOLDER = Path(sys.argv[2])
PLACE = MlflowSettings(tracking_uri=sys.argv[3], experiment="maths")


def steps() -> None:
    """Two steps and an evaluation."""
    write_row(FOLDER / "metrics.jsonl", 1, {"kl": 0.5, "restrain/kl": None, "votes": {"prompts": 8}}, PLACE)
    write_row(FOLDER / "metrics.jsonl", 2, {"kl": 0.25}, PLACE)
    write_row(FOLDER / "evaluations.jsonl", 2, {"eval_a(b)_pass1": 0.75}, PLACE)


def resumed() -> None:
    """Step 2 again, and the end."""
    with mlflow_run.ending(PLACE, FOLDER):
        write_row(FOLDER / "metrics.jsonl", 2, {"kl": 0.2}, PLACE)


def broken() -> None:
    """The folder of the store is a file for two steps, and is there again for the third."""
    store = Path(PLACE.tracking_uri.removeprefix("file://"))
    store.write_text("")
    for step in (1, 2):
        write_row(FOLDER / "metrics.jsonl", step, {"kl": step / 10}, PLACE)
    print(json.dumps({"unsent": unsent(PLACE, FOLDER / "metrics.jsonl")}))
    store.unlink()
    write_row(FOLDER / "metrics.jsonl", 3, {"kl": 0.3}, PLACE)


def failed() -> None:
    """The host stops early."""
    write_row(FOLDER / "metrics.jsonl", 1, {"kl": 0.5}, PLACE)
    try:
        with mlflow_run.ending(PLACE, FOLDER):
            raise RuntimeError
    except RuntimeError:
        pass


def checked() -> None:
    """The check before a run, which makes none."""
    mlflow_run.refuse_unusable(PLACE, FOLDER)


def found() -> dict[str, Any]:
    """All runs of the experiment: status, name, parameters, and each metric's points."""
    client = mlflow_run.client_of(PLACE)
    experiment = client.get_experiment_by_name(PLACE.experiment)
    runs = client.search_runs([experiment.experiment_id]) if experiment else []
    return {
        "unsent": unsent(PLACE, FOLDER / "metrics.jsonl"),
        "runs": [
            {
                "id": run.info.run_id,
                "name": run.info.run_name,
                "status": run.info.status,
                "parameters": run.data.params,
                "latest": run.data.metrics,
                "points": {
                    name: [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, name)]
                    for name in run.data.metrics
                },
            }
            for run in runs
        ],
    }


ACTIONS: dict[str, Callable[[], None]] = {each.__name__: each for each in (steps, resumed, broken, failed, checked)}

if __name__ == "__main__":
    ACTIONS[sys.argv[1]]()
    print(json.dumps(found()))
