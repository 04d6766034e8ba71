"""What differs from cluster to cluster: the cluster file, its patches on the tree, and overlays with their nodes."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv6Network, ip_network
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.config import JsonDict

from restrain_openrlhf.commands.k8s.patches import ANNOTATIONS, QUEUE, WORKERS, Patch, json_patch
from restrain_openrlhf.config.documents import read_yaml, typed
from restrain_openrlhf.config.nodes import NodeShape
from restrain_openrlhf.errors import ConfigError

CLAIM = "PersistentVolumeClaim"
STORAGE = "/spec/resources/requests/storage"
MONITORS = ("PodMonitor", "ServiceMonitor", "PrometheusRule")
QUEUES = ("ClusterQueue", "LocalQueue", "ResourceFlavor", "Topology", "WorkloadPriorityClass")
PRIORITY = "kueue.x-k8s.io/priority-class"
DOWNLOADS = "prefetch|data|benchmarks"
GPU_JOBS = "reference|evaluation|train|test-time"
GPU, PRODUCT, HOSTNAME = "nvidia.com/gpu", "nvidia.com/gpu.product", "kubernetes.io/hostname"
PODS_PER_NODE = 4


class AccessMode(StrEnum):
    """Which pods can mount the volumes at the same time: those on all nodes, or those on one node."""

    ALL_NODES = "ReadWriteMany"
    ONE_NODE = "ReadWriteOnce"


SIZE = r"^(\d*[1-9]\d*(\.\d+)?|\d+\.\d*[1-9]\d*)(Mi|Gi|Ti|M|G|T)$"
NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
LABEL_VALUE = r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
LABEL_KEY = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"


def _each(pattern: str) -> JsonDict:
    """The part of a JSON schema that gives each text of a list a form."""
    return {"items": {"type": "string", "pattern": pattern}}


class Cluster(BaseModel):
    """The cluster file. Each key is also an option of the commands; without it, the overlay's value stays."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    overlay: str | None = Field(
        None, description="An overlay, which is a folder of k8s/overlays: single-node or 8xa100-80g, for example."
    )
    max_nodes: int | None = Field(None, ge=1, description="Most GPU nodes of a run, the quota and the queue.")
    gpu_memory: int | None = Field(
        None, ge=1, description="Memory of one GPU, in GiB. A configuration that cannot fit is refused."
    )
    gpu_product: str | None = Field(
        None, pattern=LABEL_VALUE, description="GPU type of the nodes: their label nvidia.com/gpu.product."
    )
    storage_class: str | None = Field(None, pattern=NAME, description="Storage class of the volumes.")
    access_mode: AccessMode | None = Field(None, description="Access mode of the volumes.")
    models_size: str | None = Field(None, pattern=SIZE, description="Size of the models volume, such as 500Gi.")
    work_size: str | None = Field(None, pattern=SIZE, description="Size of the work volume, such as 2Ti.")
    pull_secrets: list[str] = Field(
        [], description="Secrets of the namespace for pulling images.", json_schema_extra=_each(NAME)
    )
    prometheus_release: str | None = Field(
        None,
        pattern=LABEL_VALUE,
        description="Label `release` that kube-prometheus-stack requires of monitors and rules.",
    )
    monitoring: bool | None = Field(None, description="Whether the cluster has prometheus-operator.")
    queue: str | None = Field(
        None,
        pattern=NAME,
        description="Your own LocalQueue for GPU jobs, instead of the queues of k8s/.",
    )
    topology: list[str] = Field(
        [],
        description="Node labels by which Kueue places workers near each other, the widest first.",
        json_schema_extra=_each(LABEL_KEY),
    )
    deny_egress: list[str] = Field(
        [], description="Address ranges that downloads may not reach, in addition to private ones."
    )
    dns: list[str] = Field([], description="Addresses of DNS servers that are not pods, in addition to the usual two.")
    components: list[str] = Field(
        [], description="Components (folders of k8s/components) to add, such as runtime-class."
    )

    @field_validator("pull_secrets", "topology")
    @classmethod
    def _have_their_form(cls, words: list[str], info: ValidationInfo) -> list[str]:
        pattern, needed = {
            "pull_secrets": (NAME, "the name of a secret, which has lower-case letters, digits, dashes and dots"),
            "topology": (LABEL_KEY, "the key of a node's label, such as topology.kubernetes.io/zone"),
        }[str(info.field_name)]
        for word in words:
            if not re.search(pattern, word):
                raise ValueError(f"{word!r} is not {needed}")
        return words

    @field_validator("deny_egress", "dns")
    @classmethod
    def _are_ranges(cls, words: list[str]) -> list[str]:
        return [str(ip_network(word)) for word in words]

    def over(self, file: Path | None) -> "Cluster":
        """The settings of a cluster file, overridden by those that are set here."""
        given = {name: value for name, value in self.model_dump().items() if value not in (None, [])}
        return typed(Cluster, {**read_yaml(file), **given}, file) if file else self

    def patches(self) -> list[Patch]:
        """JSON6902 patches that put these settings into the tree, in Kustomize's form."""
        changes = (
            ({"kind": CLAIM}, "/spec/storageClassName", self.storage_class),
            ({"kind": CLAIM}, "/spec/accessModes", self.access_mode and [str(self.access_mode)]),
            ({"kind": CLAIM, "name": "models"}, STORAGE, self.models_size),
            ({"kind": CLAIM, "name": "work"}, STORAGE, self.work_size),
            ({"kind": "ServiceAccount"}, "/imagePullSecrets", [{"name": each} for each in self.pull_secrets]),
            ({"kind": "|".join(MONITORS)}, "/metadata/labels/release", self.prometheus_release),
            ({"kind": "RayJob|Job", "name": GPU_JOBS}, _key("/metadata/labels", QUEUE), self.queue),
            *self._near_each_other(),
            *(({"kind": "NetworkPolicy", "name": DOWNLOADS}, *_exception(each)) for each in self.deny_egress),
            *(({"kind": "NetworkPolicy", "name": "dns"}, "/spec/egress/0/to/-", _block(each)) for each in self.dns),
        )
        return [json_patch(target, (path, value), op="add") for target, path, value in changes if value]

    def _near_each_other(self) -> list[tuple[dict[str, str], str, object]]:
        """Patches that say how near each other the nodes of a run must be."""
        # Prefer pods near each other by the narrowest label above the single host, if there is one.
        narrow = [label for label in self.topology if label != HOSTNAME] or self.topology
        near = _key(f"{WORKERS}/template{ANNOTATIONS}", "kueue.x-k8s.io/podset-preferred-topology")
        return [
            ({"kind": "Topology"}, "/spec/levels", [{"nodeLabel": label} for label in self.topology]),
            ({"kind": "RayJob"}, near, narrow[-1] if narrow else None),
        ]

    def fitted(self, objects: Iterable[dict[str, Any]], shape: NodeShape) -> list[dict[str, Any]]:
        """The objects with quotas for `max_nodes` nodes, and GPUs of `gpu_product`.

        Kinds that the cluster lacks, or has its own of, are left out.
        """
        left_out = (*(QUEUES if self.queue else ()), *(MONITORS if self.monitoring is False else ()))
        kept = [each for each in objects if each["kind"] not in left_out]
        for each in kept:
            if self.queue:
                each["metadata"].get("labels", {}).pop(PRIORITY, None)
            if self.gpu_product and (pod := _gpu_pod(each)) is not None:
                # The labels that an overlay asks for stay.
                pod["nodeSelector"] = {**pod.get("nodeSelector", {}), PRODUCT: self.gpu_product}
            if self.max_nodes and each["kind"] in ("ResourceQuota", "ClusterQueue"):
                _resize(each, self.max_nodes, self.max_nodes * shape.gpus_per_node)
        return kept

    def refuse_one_node(self, objects: Iterable[Mapping[str, Any]], nodes: int) -> None:
        """Raises ConfigError if several nodes would share a volume of one node, or an overlay has a single pod."""
        kinds = {each["kind"] for each in objects}
        if self.access_mode is AccessMode.ONE_NODE and "RayJob" in kinds:
            raise ConfigError(
                f"access_mode is {AccessMode.ONE_NODE}, but the pods of a Ray cluster run on several nodes and share "
                f"volumes. Give a storage class with {AccessMode.ALL_NODES}, or use the overlay single-node."
            )
        if nodes > 1 and "RayJob" not in kinds and "Job" in kinds:
            raise ConfigError(
                f"The layout needs {nodes} nodes, but in this overlay a run is a single pod. Use an overlay with "
                "KubeRay."
            )

    def added_components(self, tree: Path) -> list[Path]:
        """Folders of the Kustomize components to add.

        Raises ConfigError for a component that the tree does not have.
        """
        known = sorted(path.parent.name for path in (tree / "components").glob("*/kustomization.yaml"))
        added = [*self.components, *(["topology"] if self.topology else [])]
        for name in added:
            if name not in known:
                raise ConfigError(f"components: {name!r} is unknown. Choose one of {', '.join(known)}.")
        return [tree / "components" / name for name in dict.fromkeys(added)]


def _gpu_pod(each: Mapping[str, Any]) -> dict[str, Any] | None:
    """The specification of an object's pods with GPUs; None if it has none."""
    if each["kind"] == "RayJob":
        pod: dict[str, Any] = each["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"]
        return pod
    has_gpus = each["kind"] == "Job" and each["metadata"]["name"] in GPU_JOBS.split("|")
    return each["spec"]["template"]["spec"] if has_gpus else None


def _key(path: str, key: str) -> str:
    return f"{path}/{key.replace('/', '~1')}"


def _block(text: str) -> dict[str, Any]:
    return {"ipBlock": {"cidr": text}}


def _exception(text: str) -> tuple[str, str]:
    """Path and value of an exception in a download policy, whose first block is for IPv4 and whose second for IPv6."""
    return f"/spec/egress/0/to/{int(isinstance(ip_network(text), IPv6Network))}/ipBlock/except/-", text


def _resize(each: dict[str, Any], nodes: int, gpus: int) -> None:
    """Set a ResourceQuota to `gpus` GPUs, or scale all quotas of a ClusterQueue as its number of GPUs changes."""
    if each["kind"] == "ResourceQuota":
        pods = max(int(each["spec"]["hard"]["pods"]), PODS_PER_NODE * nodes)
        each["spec"]["hard"] |= {f"requests.{GPU}": str(gpus), "pods": str(pods)}
        return
    resources = each["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    (now,) = [int(resource["nominalQuota"]) for resource in resources if resource["name"] == GPU]
    for resource in resources:
        number, unit = re.findall(r"^(\d+)(\D*)$", str(resource["nominalQuota"]))[0]
        scaled = -(-int(number) * gpus // now)
        resource["nominalQuota"] = f"{scaled}{unit}" if unit else scaled


@dataclass(frozen=True)
class Overlay:
    """One folder of `k8s/overlays`, and the nodes that a run has on this cluster."""

    path: Path
    nodes: NodeShape


def load_overlay(cluster: Cluster, tree: Path) -> Overlay:
    """The overlay that a cluster names, with the cluster file's number of nodes and GPU memory where they are set.

    Raises ConfigError if the tree, the overlay in it, or the overlay's node shape is missing or wrong.
    """
    overlays = tree / "overlays"
    if not overlays.is_dir():
        raise ConfigError(f"{tree}: has no overlays/. Give a copy of the repository's k8s/ folder as --manifests.")
    known = sorted(path.parent.name for path in overlays.glob("*/overlay.yaml"))
    if cluster.overlay not in known:
        found = f"{cluster.overlay!r}: unknown overlay" if cluster.overlay else "is missing"
        raise ConfigError(f"overlay: {found}. Give --overlay, or `overlay:` in --cluster FILE: {', '.join(known)}.")
    path = (overlays / cluster.overlay).resolve()
    shape = typed(NodeShape, read_yaml(path / "overlay.yaml"), path / "overlay.yaml")
    own = {"max_nodes": cluster.max_nodes, "gpu_memory": cluster.gpu_memory}
    return Overlay(path, shape.model_copy(update={name: value for name, value in own.items() if value}))
