"""What `restrain k8s cluster init` reads from the cluster of kubectl's context. It changes nothing there."""

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any

from restrain_openrlhf.commands.k8s.cluster import GPU, HOSTNAME, PRODUCT
from restrain_openrlhf.commands.k8s.render import refuse_old_kubectl
from restrain_openrlhf.errors import ConfigError

# The oldest Kubernetes 1.x, also in run.sh. Jobs need 1.29, and the reward service's preStop needs 1.30.
OLDEST_MINOR = 30
MEMORY = "nvidia.com/gpu.memory"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
# Parts of the names of provisioners whose volumes can be shared by pods on several nodes.
SHARED_VOLUMES = re.compile(
    r"nfs|efs|cephfs|filestore|lustre|azurefile|\bfile\.csi|gpfs|weka|beegfs|vast|glusterfs|quobyte|juicefs"
)
# Labels by which clouds say how near nodes are to each other, the widest first.
TOPOLOGIES = (
    ("cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock"),
    tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3)),
)
Item = Mapping[str, Any]


@dataclass(frozen=True)
class Survey:
    """Settings for the cluster file, and remarks on what the user has to know or to decide."""

    settings: dict[str, object]
    remarks: list[str]


def survey() -> Survey:
    """Read the cluster. Raises ConfigError if kubectl is missing, or the cluster does not answer or is too old."""
    refuse_old_kubectl()
    kinds = _kinds()
    remarks: list[str] = []
    settings = {**_nodes(kinds, remarks), **_volumes(kinds, remarks), **_monitoring(kinds), **_network(remarks)}
    if "runtimeclasses.node.k8s.io" in kinds and "nvidia" in map(_name, _items("runtimeclasses")):
        settings["components"] = ["runtime-class"]
    return Survey({key: value for key, value in settings.items() if value not in (None, [])}, remarks)


def _kinds() -> set[str]:
    """The kinds that the server knows. Raises ConfigError if it does not answer or is too old."""
    version = _kubectl("version", "-o", "json")
    server = json.loads(version or "{}").get("serverVersion", {})
    if not server:
        raise ConfigError("The cluster does not answer. Check `kubectl config current-context` and `kubectl version`.")
    if int(re.sub(r"\D", "", server["minor"])) < OLDEST_MINOR:
        raise ConfigError(f"The cluster has Kubernetes {server['gitVersion']}; 1.{OLDEST_MINOR} or newer is needed.")
    return set((_kubectl("api-resources", "-o", "name") or "").split())


def _nodes(kinds: set[str], remarks: list[str]) -> dict[str, object]:
    """The overlay for the most frequent kind of node with GPUs, and the number, GPU type and memory of those nodes."""
    nodes = [each for each in _items("nodes") if _gpus(each)]
    if not nodes:
        remarks.append("No node has GPUs at present. Set overlay, max_nodes, gpu_product and gpu_memory yourself.")
        return {}
    alike = Counter((_labels(each).get(PRODUCT), _gpus(each)) for each in nodes)
    remarks += [
        f"Nodes with GPUs: {count} x {each} {kind or 'of unknown kind'}." for (kind, each), count in alike.items()
    ]
    (product, gpus), number = alike.most_common(1)[0]
    memory = next(_labels(each).get(MEMORY, 0) for each in nodes if _labels(each).get(PRODUCT) == product)
    has_ray = "rayjobs.ray.io" in kinds
    return {
        "overlay": _overlay(kinds, gpus, remarks),
        "max_nodes": number if has_ray else None,
        "gpu_memory": round(int(memory) / 1024) or None,
        "gpu_product": product,
        "topology": _topology(nodes) if "topologies.kueue.x-k8s.io" in kinds and has_ray else [],
    }


def _overlay(kinds: set[str], gpus: int, remarks: list[str]) -> str:
    """The overlay for nodes with this number of GPUs, with or without KubeRay and Kueue."""
    has_ray = "rayjobs.ray.io" in kinds
    if not has_ray:
        remarks.append("KubeRay is not installed: a run has one node.")
    if gpus not in (1, 8):
        remarks.append(
            f"There is no overlay for nodes of {gpus} GPUs. A layout may use fewer GPUs than the overlay's node has."
        )
    if gpus == 1:
        return "single-node"
    if not has_ray:
        return "single-node-8gpu"
    return "multi-node-h100" if "localqueues.kueue.x-k8s.io" in kinds else "8xa100-80g"


def _gpus(node: Item) -> int:
    return int(node["status"].get("allocatable", {}).get(GPU, 0))


def _labels(node: Item) -> Mapping[str, str]:
    labels: Mapping[str, str] = node["metadata"]["labels"]
    return labels


def _topology(nodes: Iterable[Item]) -> list[str]:
    """A cloud's topology labels that all nodes with GPUs have, then the host's; empty if there are no such labels."""
    common = set.intersection(*(set(_labels(each)) for each in nodes))
    found = next((labels for labels in TOPOLOGIES if common.issuperset(labels)), ())
    return [*found, HOSTNAME] if found else []


def _volumes(kinds: set[str], remarks: list[str]) -> dict[str, object]:
    """A storage class whose volumes all nodes can share; without KubeRay the default class, or any."""
    classes = list(_items("storageclasses"))
    shared = [_name(each) for each in classes if SHARED_VOLUMES.search(each["provisioner"])]
    usual = [_name(each) for each in classes if each["metadata"].get("annotations", {}).get(DEFAULT_CLASS) == "true"]
    remarks.append(
        f"Storage classes: {', '.join(map(_name, classes)) or 'none'}. Shared between nodes, judging by their names: "
        f"{', '.join(shared) or 'none'}."
    )  # fmt: skip
    if "rayjobs.ray.io" in kinds:
        if not shared:
            remarks.append(
                "Runs with KubeRay need a storage class with ReadWriteMany and file locks: set storage_class."
            )
        return {"storage_class": shared[0] if shared else None}
    if not usual:
        remarks.append("There is no default storage class: check storage_class.")
    return {"storage_class": None if usual else next(map(_name, classes), None)}


def _monitoring(kinds: set[str]) -> dict[str, object]:
    if "podmonitors.monitoring.coreos.com" not in kinds:
        return {"monitoring": False}
    selectors = [each["spec"].get("podMonitorSelector") or {} for each in _items("prometheuses", "-A")]
    releases = [each.get("matchLabels", {}).get("release") for each in selectors]
    return {"prometheus_release": next(filter(None, releases), None)}


def _network(remarks: list[str]) -> dict[str, object]:
    """Deny downloads the public addresses of the API server and of services, and allow a DNS cache on the nodes."""
    services = [
        each["spec"]["clusterIP"] for each in _items("services", "-n", "default") if _name(each) == "kubernetes"
    ]
    ranges = [cidr for each in _items("servicecidrs") for cidr in each["spec"]["cidrs"]]
    endpoints = [each for each in _items("endpoints", "-n", "default") if _name(each) == "kubernetes"]
    servers = [address["ip"] for each in endpoints for part in each.get("subsets", []) for address in part["addresses"]]
    public = [each for each in [*(ranges or services), *servers] if ip_address(each.partition("/")[0]).is_global]
    if public and not ranges:
        remarks.append(
            "The address range of the cluster's services is public and could not be found: add it to deny_egress."
        )
    cached = "node-local-dns" in map(_name, _items("daemonsets", "-n", "kube-system"))
    dns = [each["spec"]["clusterIP"] for each in _items("services", "-n", "kube-system") if _name(each) == "kube-dns"]
    return {"deny_egress": [str(ip_network(each)) for each in public], "dns": dns if cached else []}


def _name(each: Item) -> str:
    return str(each["metadata"]["name"])


def _items(kind: str, *words: str) -> Iterator[Item]:
    """The objects of a kind; none if the server does not have the kind or does not let the user see it."""
    found: Iterable[Item] = json.loads(_kubectl("get", kind, *words, "-o", "json") or "{}").get("items", [])
    return iter(found)


def _kubectl(*words: str) -> str | None:
    done = subprocess.run(["kubectl", *words], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None
