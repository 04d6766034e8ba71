"""A run's numbers in MLflow: over a real file store, and over a server that is not there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from restrain_openrlhf.config.blocks import MlflowSettings
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.records.mlflow_run import metric_name, tracked
from tests.conftest import ROOT
from tests.processes import free_port

# Not imported: it is a script, which reads its words as it is loaded.
CASE = Path(__file__).with_name("mlflow_case.py")
INSTALLED = Path(os.environ.get("RESTRAIN_TEST_MLFLOW", ROOT / "build" / "mlflow"))


@pytest.fixture
def mlflow(tmp_path):
    """Does one of mlflow_case's actions in a process that has MLflow; returns what it printed and its stderr."""
    if not (INSTALLED / "mlflow").is_dir():
        pytest.skip("needs MLflow: make build/mlflow/.installed")
    (tmp_path / "run").mkdir()
    environment = {**os.environ, "PYTHONPATH": f"{INSTALLED}:{ROOT}", "MLFLOW_ALLOW_FILE_STORE": "true"}
    environment["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"

    def act(action, place=None):
        words = [sys.executable, CASE, action, tmp_path / "run", place or f"file://{tmp_path}/store"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")], done.stderr

    return act


def rows(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_resumed_run_goes_on_in_the_same_run_of_mlflow(mlflow, tmp_path):
    resolved = {"method": {"name": "restrain", "kappa": 3}, "openrlhf": {f"flag{n}": n for n in range(250)}}
    resolved["openrlhf"] |= {"reward.remote_url": None}
    (tmp_path / "run" / "run.json").write_text(json.dumps(resolved))
    [during, first], _ = mlflow("steps")
    [run] = first["runs"]
    assert (run["name"], during["status"], run["status"]) == (f"{tmp_path.name}/run", "RUNNING", "FINISHED")
    assert run["points"] == {"kl": [[1, 0.5], [2, 0.25]], "eval_a_b__pass1": [[2, 0.75]]}
    assert len(run["parameters"]) == 252
    assert (run["parameters"]["method.kappa"], run["parameters"]["openrlhf.flag249"]) == ("3", "249")
    [second], _ = mlflow("resumed")
    [again] = second["runs"]
    assert (again["id"], again["status"]) == (run["id"], "FINISHED")
    assert again["points"]["kl"] == [[1, 0.5], [2, 0.25], [2, 0.2]]
    assert again["latest"]["kl"] == 0.2
    assert [row["kl"] for row in rows(tmp_path / "run")] == [0.5, 0.2]


def test_a_resumed_run_goes_on_without_a_server_and_says_what_it_lacks(mlflow, tmp_path):
    place = f"http://127.0.0.1:{free_port()}"
    kept = {"place": {"tracking_uri": place, "experiment": "maths"}, "run_id": "of-before"}
    (tmp_path / "run" / "mlflow.json").write_text(json.dumps(kept))
    _, told = mlflow("away", place)
    assert f"MLflow at {place} is missing 1 rows of this run, which ended as FINISHED" in told
    assert [row["step"] for row in rows(tmp_path / "run")] == [3]


@pytest.mark.parametrize(("action", "status"), [("failed", "FAILED"), ("killed", "KILLED")])
def test_a_run_that_stops_early_is_marked(mlflow, action, status):
    assert mlflow(action)[0][0]["runs"][0]["status"] == status


def test_a_folder_of_another_place_gets_a_run_of_its_own_with_all_its_rows(mlflow, tmp_path):
    mlflow("steps")
    [other], _ = mlflow("resumed", f"file://{tmp_path}/other")
    assert len(other["runs"]) == 1
    assert sorted(other["runs"][0]["points"]["kl"]) == [[1, 0.5], [2, 0.2]]


GOOD = "run_dir: runs/x\nmethod: {name: ttrl}\n"


def test_a_server_that_is_not_there_ends_a_new_run_before_it_starts(mlflow, tmp_path):
    place = f"http://127.0.0.1:{free_port()}"
    code = (
        "from pathlib import Path; from restrain_openrlhf.config.blocks import MlflowSettings; "
        "from restrain_openrlhf.records.mlflow_run import tracked; "
        f"tracked(MlflowSettings(tracking_uri='{place}'), Path('{tmp_path}')).__enter__()"
    )
    environment = {**os.environ, "PYTHONPATH": f"{INSTALLED}:{ROOT}", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert f"mlflow.tracking_uri {place}: cannot be used" in done.stderr
    assert not (tmp_path / "mlflow.json").exists()


def test_without_mlflow_the_extra_is_named_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    place = MlflowSettings(tracking_uri="http://here")
    with pytest.raises(ConfigError, match=r"pip install 'restrain-openrlhf\[mlflow\]'"), tracked(place, tmp_path):
        pass


def test_without_the_block_nothing_is_sent(tmp_path):
    with tracked(None, tmp_path) as send:
        send()
    assert list(tmp_path.iterdir()) == []


def test_names_are_made_such_as_mlflow_takes():
    assert metric_name("restrain/kl") == "restrain/kl"
    assert metric_name("/data/ümlaut (1)") == "data/_mlaut _1_"


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("{}", "mlflow.tracking_uri"),
        ("{tracking_uri: ''}", "mlflow.tracking_uri is ''"),
        ("{tracking_uri: 'http://me:word@host'}", "MLFLOW_TRACKING_PASSWORD"),
        ("{tracking_uri: x, experiment: ''}", "mlflow.experiment is ''"),
        ("{tracking_uri: x, experimnt: y}", "mlflow.experimnt"),
        ("http://host", "mlflow is 'http://host'"),
    ],
)
def test_a_wrong_block_is_refused(tmp_path, block, message):
    path = tmp_path / "run.yaml"
    path.write_text(f"{GOOD}mlflow: {block}\n")
    with pytest.raises(ConfigError) as error:
        load_run_config(path)
    assert message in str(error.value)


def test_a_password_of_an_address_is_not_in_the_error(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(GOOD + "mlflow: {tracking_uri: 'http://me:word@host'}\n")
    with pytest.raises(ConfigError) as error:
        load_run_config(path)
    assert "word@" not in str(error.value)


def test_a_folder_is_absolute_and_a_server_stays_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert MlflowSettings(tracking_uri="mlruns").tracking_uri == f"file://{tmp_path}/mlruns"
    assert MlflowSettings(tracking_uri="databricks").tracking_uri == "databricks"
    assert MlflowSettings(tracking_uri="http://here:5000").tracking_uri == "http://here:5000"
