"""How many runs go at once: one where each starts Ray itself, else as many as the cluster has GPUs for."""

import subprocess
import sys

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

from restrain_openrlhf.commands.study import runner  # noqa: E402
from restrain_openrlhf.commands.study.plan import plan_study  # noqa: E402
from restrain_openrlhf.errors import ConfigError  # noqa: E402
from tests.conftest import ROOT  # noqa: E402

EVALUATED = {"openrlhf.eval.dataset": "held.jsonl", "openrlhf.eval.steps": 5, "openrlhf.data.label_key": "answer"}


@pytest.fixture
def runs(tmp_path):
    """Two presets of one node with eight GPUs that everything shares."""
    folder = ROOT / "configs" / "dapo14k" / "qwen3-4b-base"
    return plan_study([folder / "ttrl.yaml", folder / "restrain.yaml"], 2, tmp_path, EVALUATED)


def test_without_a_cluster_one_at_a_time(runs, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert runner.runs_at_a_time(runs) == 1


@pytest.mark.parametrize(("gpus", "at_a_time"), [(8, 1), (15, 1), (16, 2), (64, 8)])
def test_as_many_as_the_cluster_has_gpus_for(runs, monkeypatch, gpus, at_a_time):
    monkeypatch.setenv("RAY_ADDRESS", "somewhere:6379")
    monkeypatch.setattr(runner, "cluster_gpus", lambda: float(gpus))
    assert runner.runs_at_a_time(runs) == at_a_time


def test_a_cluster_that_holds_no_run_is_refused(runs, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "somewhere:6379")
    monkeypatch.setattr(runner, "cluster_gpus", lambda: 4.0)
    with pytest.raises(ConfigError, match="needs 8 GPUs and the Ray cluster has 4"):
        runner.runs_at_a_time(runs)


ASK = """
import os
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_gpus": 2, "num_cpus": 1})
cluster.add_node(num_gpus=1, num_cpus=1)
os.environ["RAY_ADDRESS"] = cluster.address
from restrain_openrlhf.hook.wait_for_gpus import cluster_gpus
print("gpus:", cluster_gpus())
cluster.shutdown()
"""


@pytest.mark.e2e
def test_a_real_cluster_says_what_its_nodes_have():
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=False)
    assert done.stdout.strip().splitlines()[-1] == "gpus: 3.0", done.stderr[-2000:]
