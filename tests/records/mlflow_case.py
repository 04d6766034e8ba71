"""A process that does one of these things with a real MLflow, and prints what its store has then.

MLflow is not in the tests' own environment (requirements/mlflow.txt), so that only such a process imports it.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from restrain_openrlhf.config.blocks import MlflowSettings
from restrain_openrlhf.records import mlflow_run
from restrain_openrlhf.records.metrics import append_row

FOLDER = Path(sys.argv[2])
PLACE = MlflowSettings(tracking_uri=sys.argv[3], experiment="maths")


def step(number: int, **numbers: Any) -> None:
    append_row(FOLDER / "metrics.jsonl", number, numbers)


def steps() -> None:
    """Two steps and an evaluation, in a run that goes on."""
    with mlflow_run.tracked(PLACE, FOLDER) as send:
        step(1, kl=0.5, **{"restrain/kl": None, "votes": {"prompts": 8}})
        send()
        step(2, kl=0.25)
        append_row(FOLDER / "evaluations.jsonl", 2, {"eval_a(b)_pass1": 0.75})
        send()
        print(json.dumps({"status": found()["runs"][0]["status"]}))


def resumed() -> None:
    """Step 2 again, and the end."""
    with mlflow_run.tracked(PLACE, FOLDER):
        step(2, kl=0.2)


def away() -> None:
    """A run that was made before goes on with a server that does not answer."""
    with mlflow_run.tracked(PLACE, FOLDER) as send:
        step(3, kl=0.3)
        send()


def failed() -> None:
    """The host stops early."""
    try:
        with mlflow_run.tracked(PLACE, FOLDER):
            step(1, kl=0.5)
            raise RuntimeError
    except RuntimeError:
        pass


def killed() -> None:
    """Ctrl-C."""
    try:
        with mlflow_run.tracked(PLACE, FOLDER):
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass


def found() -> dict[str, Any]:
    """All runs of the experiment: status, name, parameters, and each metric's points in the order of a chart.

    MLflow's own thread hands the rows to a pool of threads, so that they can reach the store in another order.
    """
    from mlflow.tracking import MlflowClient

    client = MlflowClient(PLACE.tracking_uri)
    experiment = client.get_experiment_by_name(PLACE.experiment)
    runs = client.search_runs([experiment.experiment_id]) if experiment else []
    return {
        "runs": [
            {
                "id": run.info.run_id,
                "name": run.info.run_name,
                "status": run.info.status,
                "parameters": run.data.params,
                "latest": run.data.metrics,
                "points": {name: points(client.get_metric_history(run.info.run_id, name)) for name in run.data.metrics},
            }
            for run in runs
        ],
    }


def points(history: list[Any]) -> list[tuple[int, float]]:
    """Step and value of each point, by step, and points of one step by when they were logged."""
    return [(each.step, each.value) for each in sorted(history, key=lambda each: (each.step, each.timestamp))]


ACTIONS: dict[str, Callable[[], None]] = {each.__name__: each for each in (steps, resumed, away, failed, killed)}

if __name__ == "__main__":
    ACTIONS[sys.argv[1]]()
    if ACTIONS[sys.argv[1]] is not away:
        print(json.dumps(found()))
