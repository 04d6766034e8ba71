"""How many GPUs a real Ray cluster says it has."""

import subprocess
import sys

import pytest

pytest.importorskip("ray", reason="needs the training stack: make install")
pytestmark = [pytest.mark.host, pytest.mark.e2e]

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


def test_a_real_cluster_says_what_its_nodes_have():
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=False)
    assert done.stdout.strip().splitlines()[-1] == "gpus: 3.0", done.stderr[-2000:]
