"""What differs from cluster to cluster: the cluster file, its patches on the tree, and overlays with their nodes."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from restrain_openrlhf.commands.k8s.experiment import Patch, json_patch
from restrain_openrlhf.config.documents import read_yaml, typed
from restrain_openrlhf.config.gpu_layout import NodeShape
from restrain_openrlhf.errors import ConfigError

CLAIM = "PersistentVolumeClaim"
STORAGE = "/spec/resources/requests/storage"
MONITORS = ("PodMonitor", "ServiceMonitor", "PrometheusRule")
GPU_JOBS = ("reference", "evaluation", "train", "test-time")
PRODUCT = "nvidia.com/gpu.product"


SIZE = r"^(\d*[1-9]\d*(\.\d+)?|\d+\.\d*[1-9]\d*)(Mi|Gi|Ti|M|G|T)$"
NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
LABEL_VALUE = r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"


class Cluster(BaseModel):
    """The cluster file. Each key is also an option of the commands; without it, the overlay's value stays."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    overlay: str | None = Field(
        None, description="An overlay, which is a folder of k8s/overlays: single-node or 8xa100-80g, for example."
    )
    gpu_memory: int | None = Field(
        None, ge=1, description="Memory of one GPU, in GiB. A configuration that cannot fit is refused."
    )
    gpu_product: str | None = Field(
        None, pattern=LABEL_VALUE, description="GPU type of the nodes: their label nvidia.com/gpu.product."
    )
    storage_class: str | None = Field(None, pattern=NAME, description="Storage class of the volumes.")
    models_size: str | None = Field(None, pattern=SIZE, description="Size of the models volume, such as 500Gi.")
    work_size: str | None = Field(None, pattern=SIZE, description="Size of the work volume, such as 2Ti.")
    pull_secrets: list[str] = Field([], description="Secrets of the namespace for pulling images.")
    prometheus_release: str | None = Field(
        None,
        pattern=LABEL_VALUE,
        description="Label `release` that kube-prometheus-stack requires of monitors and rules.",
    )
    monitoring: bool | None = Field(None, description="Whether the cluster has prometheus-operator.")

    @field_validator("pull_secrets")
    @classmethod
    def _have_their_form(cls, words: list[str]) -> list[str]:
        for word in words:
            if not re.search(NAME, word):
                raise ValueError(
                    f"{word!r} is not the name of a secret, which has lower-case letters, digits, dashes and dots"
                )
        return words

    def over(self, file: Path | None) -> "Cluster":
        """The settings of a cluster file, overridden by those that are set here."""
        given = {name: value for name, value in self.model_dump().items() if value not in (None, [])}
        return typed(Cluster, {**read_yaml(file), **given}, file) if file else self

    def patches(self) -> list[Patch]:
        """JSON6902 patches that put these settings into the tree, in Kustomize's form."""
        changes = (
            ({"kind": CLAIM}, "/spec/storageClassName", self.storage_class),
            ({"kind": CLAIM, "name": "models"}, STORAGE, self.models_size),
            ({"kind": CLAIM, "name": "work"}, STORAGE, self.work_size),
            ({"kind": "ServiceAccount"}, "/imagePullSecrets", [{"name": each} for each in self.pull_secrets]),
            ({"kind": "|".join(MONITORS)}, "/metadata/labels/release", self.prometheus_release),
        )
        return [json_patch(target, (path, value), op="add") for target, path, value in changes if value]

    def fitted(self, objects: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """The objects with GPUs of `gpu_product`. Kinds that the cluster lacks are left out."""
        kept = [each for each in objects if self.monitoring is not False or each["kind"] not in MONITORS]
        for pod in filter(None, map(_gpu_pod, kept)):
            if self.gpu_product:
                # The labels that an overlay asks for stay.
                pod["nodeSelector"] = {**pod.get("nodeSelector", {}), PRODUCT: self.gpu_product}
        return kept


def _gpu_pod(each: Mapping[str, Any]) -> dict[str, Any] | None:
    """The specification of an object's pods with GPUs; None if it has none."""
    if each["kind"] == "RayJob":
        pod: dict[str, Any] = each["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"]
        return pod
    has_gpus = each["kind"] == "Job" and each["metadata"]["name"] in GPU_JOBS
    return each["spec"]["template"]["spec"] if has_gpus else None


@dataclass(frozen=True)
class Overlay:
    """One folder of `k8s/overlays`, and the nodes that a run has on this cluster."""

    path: Path
    nodes: NodeShape


def load_overlay(cluster: Cluster, tree: Path) -> Overlay:
    """The overlay that a cluster names, with the cluster file's GPU memory where it is set.

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
    own = {} if cluster.gpu_memory is None else {"gpu_memory": cluster.gpu_memory}
    return Overlay(path, typed(NodeShape, {**read_yaml(path / "overlay.yaml"), **own}, path / "overlay.yaml"))
