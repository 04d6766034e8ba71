"""The overlays of the Kustomize tree, the GPU nodes that each is for, and what else differs from cluster to cluster."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from ipaddress import IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.config.documents import read_yaml, typed
from restrain_openrlhf.config.nodes import NodeShape
from restrain_openrlhf.errors import ConfigError

Patch = dict[str, Any]
CLAIM = "PersistentVolumeClaim"
STORAGE = "/spec/resources/requests/storage"
MONITORS = "PodMonitor|ServiceMonitor|PrometheusRule"
DOWNLOADS = "prefetch|data|benchmarks"
cluster_option = partial(typer.Option, rich_help_panel="The cluster")


def json_patch(target: Mapping[str, str], *changes: tuple[str, object], op: str = "replace") -> Patch:
    """A JSON6902 patch as Kustomize takes it: `changes` are paths and the values that they get."""
    return {
        "target": dict(target),
        "operations": [{"op": op, "path": path, "value": value} for path, value in changes],
    }


class AccessMode(StrEnum):
    """Whose pods share the volumes: those of all nodes, or of one."""

    ALL_NODES = "ReadWriteMany"
    ONE_NODE = "ReadWriteOnce"


class Cluster(BaseModel):
    """What differs from cluster to cluster, each an option of `restrain k8s render`; None leaves the overlay's."""

    model_config = ConfigDict(frozen=True)

    image: Annotated[
        list[str], typer.Option(metavar="NAME=REF@sha256:…", help="Image by digest. Repeatable.", show_default=False)
    ] = []
    gpu_memory: Annotated[
        int | None,
        cluster_option(
            min=1,
            metavar="GIB",
            help="Memory of a GPU: a CONFIG that cannot fit is refused.",
            show_default="the overlay's",
        ),
    ] = None
    storage_class: Annotated[
        str | None, cluster_option(help="Storage class of the volumes.", show_default="the cluster's")
    ] = None
    access_mode: Annotated[AccessMode | None, cluster_option(help="Of the volumes.", show_default="the overlay's")] = (
        None
    )
    models_size: Annotated[
        str | None, cluster_option(help="Size of the models volume, such as 500Gi.", show_default="the overlay's")
    ] = None
    work_size: Annotated[
        str | None, cluster_option(help="Size of the work volume, such as 2Ti.", show_default="the overlay's")
    ] = None
    deny_egress: Annotated[
        list[str],
        cluster_option(
            metavar="CIDR",
            help="Range that downloads may not reach, beside private ones. Repeatable.",
            show_default=False,
        ),
    ] = []
    prometheus_release: Annotated[
        str | None, cluster_option(help="The label `release` that kube-prometheus-stack asks of monitors and rules.")
    ] = None
    component: Annotated[
        list[str],
        cluster_option(
            metavar="NAME",
            help="Folder of k8s/components to add, such as runtime-class. Repeatable.",
            show_default=False,
        ),
    ] = []

    def patches(self) -> list[Patch]:
        """JSON6902 patches on the tree, as Kustomize takes them. Raises ConfigError for a range that is none."""
        modes = None if self.access_mode is None else [str(self.access_mode)]
        changes = (
            ({"kind": CLAIM}, "/spec/storageClassName", self.storage_class),
            ({"kind": CLAIM}, "/spec/accessModes", modes),
            ({"kind": CLAIM, "name": "models"}, STORAGE, self.models_size),
            ({"kind": CLAIM, "name": "work"}, STORAGE, self.work_size),
            ({"kind": MONITORS}, "/metadata/labels/release", self.prometheus_release),
            *(({"kind": "NetworkPolicy", "name": DOWNLOADS}, *closed) for closed in map(_exception, self.deny_egress)),
        )
        return [json_patch(target, (path, value), op="add") for target, path, value in changes if value is not None]

    def refuse_one_node(self, kinds: Iterable[str]) -> None:
        """Raises ConfigError where pods of several nodes would share a volume of one."""
        if self.access_mode is AccessMode.ONE_NODE and "RayJob" in set(kinds):
            raise ConfigError(
                f"--access-mode {AccessMode.ONE_NODE}: the pods of a Ray cluster are on several nodes and share "
                f"volumes. Give a storage class with {AccessMode.ALL_NODES}, or use the overlay single-node."
            )

    def components(self, tree: Path) -> list[Path]:
        """Raises ConfigError for a component that the tree does not have."""
        known = sorted(path.parent.name for path in (tree / "components").glob("*/kustomization.yaml"))
        for name in self.component:
            if name not in known:
                raise ConfigError(f"--component {name!r}: unknown component. Choose one of {', '.join(known)}.")
        return [tree / "components" / name for name in self.component]


def _exception(text: str) -> tuple[str, str]:
    """Where a policy of downloads keeps an address range from them: its blocks are IPv4 and IPv6, in this order."""
    try:
        network = ip_network(text)
    except ValueError as error:
        raise ConfigError(f"--deny-egress: {error}. Give a range such as 34.118.224.0/20, or one address.") from None
    return f"/spec/egress/0/to/{int(isinstance(network, IPv6Network))}/ipBlock/except/-", str(network)


@dataclass(frozen=True)
class Overlay:
    """One folder of `k8s/overlays`."""

    path: Path
    nodes: NodeShape


def load_overlay(name: str, tree: Path) -> Overlay:
    """The overlay of this name. Raises ConfigError if the overlay, its tree or its node shape is missing or wrong."""
    overlays = tree / "overlays"
    if not overlays.is_dir():
        raise ConfigError(f"{tree}: has no overlays/. Give a copy of the repository's k8s/ folder as --manifests.")
    known = sorted(path.parent.name for path in overlays.glob("*/overlay.yaml"))
    if name not in known:
        raise ConfigError(f"--overlay {name!r}: unknown overlay. Choose one of {', '.join(known)}.")
    path = (overlays / name).resolve()
    shape = path / "overlay.yaml"
    return Overlay(path, typed(NodeShape, read_yaml(shape), shape))
