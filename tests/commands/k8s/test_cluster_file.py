"""The cluster file, and the runs of a namespace whose platform it has made."""

import pytest
import yaml

from tests.command_line import restrain
from tests.commands.k8s import rules_jobs
from tests.commands.k8s.experiments import rendered
from tests.commands.k8s.manifests import of_kind
from tests.commands.k8s.runs import Place, folder
from tests.commands.k8s.stand_in.api import StandIn

pytestmark = pytest.mark.host

H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}
SHORT = ("--only", "prefetch", "--only", "merge-reference")
GPU = "nvidia.com/gpu"


# Names that an API server refuses.
ODD = (
    {"gpu_product": "NVIDIA H100 80GB"},
    {"pull_secrets": ["My_Secret"]},
    {"pull_secrets": [""]},
    {"prometheus_release": "kube prometheus"},
    {"work_size": "0Gi"},
    {"pull_secrets": "regcred"},
)


@pytest.mark.parametrize(
    "wrong",
    [{"overlays": "single-node"}, {"access_mode": "ReadOnly"}, {"max_nodes": 0}, {"work_size": "2 TB"}, *ODD],
    ids=str,
)
def test_what_no_cluster_has_is_refused_by_its_key(wrong, tmp_path):
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump(wrong))
    done = restrain("k8s", "platform", "--cluster", path, "--out", tmp_path / "out")
    assert (done.returncode, next(iter(wrong)) in done.stderr) == (2, True)


@pytest.mark.parametrize("nodes", [8, 16])
def test_more_nodes_than_the_overlay_has(nodes):
    sets = {"actor.num_nodes": nodes, "ref.num_nodes": nodes, "vllm.num_engines": nodes * 8}
    words = [word for name, value in sets.items() for word in ("--set", f"openrlhf.{name}={value}")]
    objects = rendered("--max-nodes", nodes, *words, overlay="multi-node-h100")
    (run,) = of_kind(objects, "RayJob")
    (group,) = run["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert {group[key] for key in ("replicas", "minReplicas", "maxReplicas")} == {nodes}
    assert rules_jobs.worker_gpus(run) == nodes * 8
    (quota,) = of_kind(objects, "ResourceQuota")
    assert quota["spec"]["hard"][f"requests.{GPU}"] == str(nodes * 8)
    # A head, a submitter and the workers, with another run's beside them.
    assert int(quota["spec"]["hard"]["pods"]) >= 2 * (nodes + 2)
    (queue,) = of_kind(objects, "ClusterQueue")
    (flavor,) = queue["spec"]["resourceGroups"][0]["flavors"]
    limits = {each["name"]: int(str(each["nominalQuota"]).removesuffix("Gi")) for each in flavor["resources"]}
    assert limits[GPU] == nodes * 8
    for name in ("cpu", "memory"):
        asked = group["template"]["spec"]["containers"][0]["resources"]["requests"][name]
        assert limits[name] >= nodes * int(str(asked).removesuffix("Gi"))


def test_the_second_experiment_stops_before_it_changes_the_platform(tmp_path):
    """With the first one's options it leaves the platform alone; without them, nothing is written to the cluster."""
    options = ("--storage-class", "standard", "--prometheus-release", "kps", "--max-nodes", 2)
    preset = {"config": "dapo14k/qwen3-4b-base/restrain", "overlay": "multi-node-h100"}
    first = folder(*SHORT, *options, **preset)
    second = folder(*SHORT, *options, "--set", "run_dir=runs/second", **preset)
    without = folder(*SHORT, "--set", "run_dir=runs/third", **preset)
    place = Place(tmp_path, StandIn(node_labels=H100))
    place.administrate(first)
    assert place.run(first).returncode == 0
    before = len(place.cluster.calls)
    done = place.run(without)
    assert done.returncode == 1
    assert "was rendered with other settings" in done.stderr
    assert [call for call in place.cluster.calls[before:] if not call.startswith("GET")] == []
    assert {each["metadata"]["labels"]["release"] for each in place.cluster.of("PodMonitor")} == {"kps"}
    done = place.run(second)
    assert done.returncode == 0, done.stderr
    assert place.run(without, "--keep-platform").returncode == 0
    assert {each["metadata"]["labels"]["release"] for each in place.cluster.of("PodMonitor")} == {"kps"}


def test_a_missing_kuberay_is_seen_before_anything_is_downloaded(tmp_path):
    manifests = folder(config="dapo14k/qwen3-4b-base/restrain", overlay="8xa100-80g")
    place = Place(tmp_path, StandIn(without=("ray.io",)))
    place.administrate(manifests)
    done = place.run(manifests)
    assert "There are no rayjobs in restrain that you may see. Install KubeRay" in done.stderr
    assert place.applied("jobs") == []
