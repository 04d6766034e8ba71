"""What differs from cluster to cluster: the cluster file, its patches on the tree, and overlays with their nodes."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, field_validator

from restrain_openrlhf.commands.k8s.patches import Patch, json_patch
from restrain_openrlhf.commands.k8s.stages import mappings
from restrain_openrlhf.config.documents import parse_yaml, read_yaml, typed
from restrain_openrlhf.config.gpu_layout import NodeShape
from restrain_openrlhf.errors import ConfigError

CLAIM = "PersistentVolumeClaim"
STORAGE = "/spec/resources/requests/storage"
MONITORS = ("PodMonitor", "ServiceMonitor", "PrometheusRule")
GPU, PRODUCT = "nvidia.com/gpu", "nvidia.com/gpu.product"
# Where every pod has the certificates, and the variables by which programs find them.
CA_FOLDER = "/etc/restrain-ca"
CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
# A name that looks like a secret's, and an address with a password.
SECRET_NAME = re.compile(r"(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|KEY)$", re.IGNORECASE)
SECRET_VALUE = re.compile(r"://[^/@\s]*@")

SIZE = r"^(\d*[1-9]\d*(\.\d+)?|\d+\.\d*[1-9]\d*)(Mi|Gi|Ti|M|G|T)$"
NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
CONFIG_MAP_KEY = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[-._a-zA-Z0-9]+$"
LABEL_VALUE = r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"


def _mapping(given: object) -> object:
    """The mapping of a word, in which it is typed as an option."""
    return parse_yaml(given, "--environment") if isinstance(given, str) else given


class Cluster(BaseModel, frozen=True, extra="forbid"):
    """The cluster file. Each key is also an option of the commands; without it, the overlay's value stays."""

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
    environment: Annotated[dict[str, str], BeforeValidator(_mapping)] = Field(
        {}, description="Variables of every pod, such as {HF_ENDPOINT: https://hub.example}. No secrets."
    )
    ca_certificate: str | None = Field(
        None,
        pattern=CONFIG_MAP_KEY,
        description="CONFIGMAP/KEY with all certificates that every pod trusts, in place of the image's.",
    )

    @field_validator("environment")
    @classmethod
    def _holds_no_secret(cls, values: dict[str, str]) -> dict[str, str]:
        for name, value in values.items():
            if SECRET_NAME.search(name) or SECRET_VALUE.search(value):
                # A ValueError would be told with the value.
                raise ConfigError(
                    f"environment: {name} looks like a secret, and manifests are kept and shown. Put it into a Secret "
                    "of the namespace: model-hub has HF_TOKEN, wandb WANDB_API_KEY (docs/operations/kubernetes.md, "
                    "Install); an overlay of your own names any other."
                )
        return values

    def over(self, file: Path | None) -> "Cluster":
        """The settings of a cluster file, overridden by those that are set here."""
        given = {name: value for name, value in self.model_dump().items() if value not in (None, [], {})}
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
        """The objects for this cluster: each pod with `environment` and certificates, GPUs of `gpu_product`.

        Kinds that the cluster lacks are left out.
        """
        kept = [each for each in objects if self.monitoring is not False or each["kind"] not in MONITORS]
        for pod in (node for each in kept for node in mappings(each) if "containers" in node):
            if self.gpu_product and any(GPU in each["resources"]["limits"] for each in pod["containers"]):
                # The labels that an overlay asks for stay.
                pod["nodeSelector"] = {**pod.get("nodeSelector", {}), PRODUCT: self.gpu_product}
            self._extend(pod)
        return kept

    def _extend(self, pod: dict[str, Any]) -> None:
        """Give a pod the certificates, and the variables that its containers do not set themselves."""
        if not (self.environment or self.ca_certificate):
            return
        variables, mounts = dict(self.environment), list[dict[str, Any]]()
        if self.ca_certificate:
            config_map, _, key = self.ca_certificate.partition("/")
            pod["volumes"].append({"name": "ca-certificate", "configMap": {"name": config_map}})
            mounts = [{"name": "ca-certificate", "mountPath": CA_FOLDER, "readOnly": True}]
            variables |= dict.fromkeys(CA_VARIABLES, f"{CA_FOLDER}/{key}")
        for each in pod["containers"]:
            named = [{"name": name, "value": value} for name, value in variables.items()]
            each["env"] = list({one["name"]: one for one in [*named, *each.get("env", [])]}.values())
            each["volumeMounts"] += mounts


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
