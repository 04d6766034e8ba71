"""The cluster file, from `restrain k8s cluster init` to the runs that a namespace has, and why a run waits."""

import json

import jsonschema
import pytest
import yaml

from tests.command_line import restrain
from tests.commands.k8s import rules_jobs
from tests.commands.k8s.experiments import rendered
from tests.commands.k8s.manifests import needs_kustomize, of_kind
from tests.commands.k8s.runs import Place, folder
from tests.commands.k8s.schemas import problems
from tests.commands.k8s.stand_in.api import StandIn

pytestmark = pytest.mark.host

H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}
SHORT = ("--only", "prefetch", "--only", "merge-reference")
GPU = "nvidia.com/gpu"
HOSTNAME = "kubernetes.io/hostname"


def of(kind, name, namespace="default", **more):
    return {"kind": kind, "metadata": {"name": name, "namespace": namespace}, **more}


@pytest.fixture
def kubectl(tmp_path, monkeypatch):
    """Makes the cluster that `kubectl` of this process talks to."""
    needs_kustomize()

    def made(**settings):
        cluster = StandIn(**settings)
        monkeypatch.setenv("KUBECONFIG", str(cluster.serve(tmp_path)))
        monkeypatch.setenv("HOME", str(tmp_path))
        return cluster

    return made


def init(tmp_path, *words):
    return restrain("k8s", "cluster", "init", "--out", tmp_path / "cluster.yaml", *words)


def test_the_file_of_a_cluster_has_what_kubectl_shows(kubectl, tmp_path):
    cluster = kubectl(nodes={"a": 8, "b": 8, "cpu": 0}, node_labels=H100, classes={"disk": True, "nfs-fast": False})
    selector = {"podMonitorSelector": {"matchLabels": {"release": "kps"}}}
    cluster.keep(of("Prometheus", "main", "monitoring", spec=selector))
    cluster.keep(of("Service", "kubernetes", spec={"clusterIP": "34.118.224.1"}))
    cluster.keep(of("Service", "kube-dns", "kube-system", spec={"clusterIP": "10.0.0.10"}))
    cluster.keep(of("DaemonSet", "node-local-dns", "kube-system"))
    cluster.keep(of("RuntimeClass", "nvidia", ""))
    done = init(tmp_path, "--max-nodes", 1)
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load((tmp_path / "cluster.yaml").read_text()) == {
        "overlay": "multi-node-h100",
        "max_nodes": 1,
        "gpu_memory": 80,
        "gpu_product": "NVIDIA-H100-80GB-HBM3",
        "storage_class": "nfs-fast",
        "prometheus_release": "kps",
        "deny_egress": ["34.118.224.1/32"],
        "dns": ["10.0.0.10/32"],
        "components": ["runtime-class"],
    }
    assert "add it to deny_egress" in done.stderr
    assert [call for call in cluster.calls if not call.startswith("GET")] == []
    assert "exists already" in init(tmp_path).stderr


CLOUD = {f"topology.k8s.aws/network-node-layer-{layer}": f"nn-{layer}" for layer in (3, 2, 1)}


@pytest.mark.parametrize(("without", "topology"), [((), [*sorted(CLOUD), HOSTNAME]), (("kueue.x-k8s.io",), None)])
def test_the_clouds_topology_is_written_where_kueue_knows_topologies(without, topology, kubectl, tmp_path):
    kubectl(nodes={"a": 8, "b": 8, "cpu": 0}, node_labels={**H100, **CLOUD}, without=without)
    assert init(tmp_path).returncode == 0
    assert yaml.safe_load((tmp_path / "cluster.yaml").read_text()).get("topology") == topology


def test_pods_reach_dns_servers_that_are_no_pods_by_the_dns_port_alone():
    """NodeLocal DNSCache and Cloud DNS of GKE; the second one's address is the cloud's metadata service too."""
    (policy,) = [
        each for each in of_kind(rendered("--dns", "10.0.0.10"), "NetworkPolicy") if each["metadata"]["name"] == "dns"
    ]
    (rule,) = policy["spec"]["egress"]
    assert [peer["ipBlock"]["cidr"] for peer in rule["to"] if "ipBlock" in peer] == [
        "169.254.20.10/32",
        "169.254.169.254/32",
        "10.0.0.10/32",
    ]
    assert {(each["port"], each["protocol"]) for each in rule["ports"]} == {(53, "UDP"), (53, "TCP")}


def test_a_cluster_with_nothing_but_kubernetes_gets_one_node(kubectl, tmp_path):
    kubectl(nodes={"a": 1}, classes={"local": False}, without=("ray.io", "kueue.x-k8s.io", "monitoring.coreos.com"))
    done = init(tmp_path)
    assert done.returncode == 0, done.stderr
    found = yaml.safe_load((tmp_path / "cluster.yaml").read_text())
    assert found == {"overlay": "single-node", "storage_class": "local", "monitoring": False}
    assert "KubeRay is not installed: a run has one node." in done.stderr


def test_an_old_cluster_and_one_that_is_away_get_no_file(kubectl, tmp_path):
    cluster = kubectl(version="1.29")
    assert "1.30 or newer is needed" in init(tmp_path).stderr
    cluster.down = True
    assert "The cluster does not answer" in init(tmp_path).stderr
    assert not (tmp_path / "cluster.yaml").exists()


# Names that an API server refuses.
ODD = (
    {"gpu_product": "NVIDIA H100 80GB"},
    {"pull_secrets": ["My_Secret"]},
    {"pull_secrets": [""]},
    {"prometheus_release": "kube prometheus"},
    {"topology": ["rack id"]},
    {"queue": "team/gpu"},
    {"work_size": "0Gi"},
    {"pull_secrets": "regcred"},
)


def test_the_schema_takes_what_the_commands_take_and_nothing_else(tmp_path):
    schema = json.loads(restrain("k8s", "cluster", "schema").stdout)
    jsonschema.validate({"overlay": "8xa100-80g", "access_mode": "ReadWriteMany", "max_nodes": 2}, schema)
    for wrong in (
        {"overlays": "single-node"},
        {"access_mode": "ReadOnly"},
        {"max_nodes": 0},
        {"work_size": "2 TB"},
        *ODD,
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)
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


def test_kueue_and_kuberay_would_accept_a_topology_of_the_clusters_own_labels(shared):
    """The custom resources' own schemas and rules: of the queue, and of a RayJob whose workers ask to be near."""
    labels = ["example.com/block", "example.com/rack", "kubernetes.io/hostname"]
    objects = rendered(*(word for label in labels for word in ("--topology", label)), overlay="multi-node-h100")
    (topology,) = of_kind(objects, "Topology")
    assert topology["spec"]["levels"] == [{"nodeLabel": label} for label in labels]
    (flavor,) = of_kind(objects, "ResourceFlavor")
    assert flavor["spec"]["topologyName"] == topology["metadata"]["name"]
    (run,) = of_kind(objects, "RayJob")
    (workers,) = run["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    asked = workers["template"]["metadata"]["annotations"]["kueue.x-k8s.io/podset-preferred-topology"]
    assert asked == "example.com/rack"
    assert [each for each in objects if problems(each, shared / "k8s" / "crds")] == []
