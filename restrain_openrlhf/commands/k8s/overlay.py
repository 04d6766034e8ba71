"""The overlays of the Kustomize tree, the GPU nodes that each is for, and what else differs from cluster to cluster."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from restrain_openrlhf.config.nodes import NodeShape
from restrain_openrlhf.config.shipped import KUBERNETES
from restrain_openrlhf.errors import ConfigError

Network = IPv4Network | IPv6Network
SHARED, ONE_NODE = "ReadWriteMany", "ReadWriteOnce"
QUANTITY = re.compile(r"[1-9]\d*(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?")
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
CLAIM = "PersistentVolumeClaim"
DOWNLOADS = "prefetch|data|benchmarks"
MONITORS = "PodMonitor|ServiceMonitor|PrometheusRule"


def json_patch(target: Mapping[str, str], *changes: tuple[str, object], op: str = "replace") -> dict[str, Any]:
    """A JSON6902 patch as Kustomize takes it: `changes` are paths and the values that they get."""
    return {
        "target": dict(target),
        "operations": [{"op": op, "path": path, "value": value} for path, value in changes],
    }


@dataclass(frozen=True)
class Overlay:
    """One folder of `k8s/overlays`."""

    path: Path
    nodes: NodeShape

    @property
    def tree(self) -> Path:
        """The whole Kustomize tree, base and components included."""
        return self.path.parents[1]


@dataclass(frozen=True)
class Cluster:
    """Values of `restrain k8s render`'s options; None and nothing leave what the overlay says.

    `sizes` are of the claims `models` and `work`, such as 500Gi. `closed` are address ranges beside the private ones.
    `images` are references by digest, by name; `components` those of the tree that are added to the overlay's.
    """

    storage_class: str | None = None
    access_mode: str | None = None
    sizes: Mapping[str, str] = field(default_factory=dict)
    closed: tuple[Network, ...] = ()
    prometheus_release: str | None = None
    images: Mapping[str, str] = field(default_factory=dict)
    components: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises ConfigError for a value that no cluster takes."""
        for option, name in (
            ("--storage-class", self.storage_class),
            ("--prometheus-release", self.prometheus_release),
        ):
            if name is not None and not NAME.fullmatch(name):
                raise ConfigError(f"{option} {name!r}: is no name of Kubernetes. Look it up, in lower case.")
        if self.access_mode not in (None, SHARED, ONE_NODE):
            raise ConfigError(f"--access-mode {self.access_mode!r}: choose {SHARED} or {ONE_NODE}.")
        for claim, size in self.sizes.items():
            if not QUANTITY.fullmatch(size):
                raise ConfigError(f"--{claim}-size {size!r}: give a size such as 500Gi.")

    def patches(self) -> list[dict[str, Any]]:
        """JSON6902 patches on the tree, as Kustomize takes them."""
        modes = [self.access_mode] if self.access_mode else None
        claims = (("/spec/storageClassName", self.storage_class), ("/spec/accessModes", modes))
        # The two blocks of each policy: IPv4 and IPv6, in this order.
        excepted = [
            (f"/spec/egress/0/to/{int(isinstance(net, IPv6Network))}/ipBlock/except/-", str(net)) for net in self.closed
        ]
        release = ("/metadata/labels/release", self.prometheus_release)
        every = [
            json_patch({"kind": CLAIM}, *(each for each in claims if each[1]), op="add"),
            *(
                json_patch({"kind": CLAIM, "name": claim}, ("/spec/resources/requests/storage", size))
                for claim, size in self.sizes.items()
            ),
            json_patch({"kind": "NetworkPolicy", "name": DOWNLOADS}, *excepted, op="add"),
            json_patch({"kind": MONITORS}, *([release] if self.prometheus_release else []), op="add"),
        ]
        return [patch for patch in every if patch["operations"]]

    def refuse_one_node(self, kinds: Iterable[str]) -> None:
        """Raises ConfigError where pods of several nodes would share a volume of one."""
        if self.access_mode == ONE_NODE and "RayJob" in set(kinds):
            raise ConfigError(
                f"--access-mode {ONE_NODE}: the pods of a Ray cluster are on several nodes and share volumes. Give a "
                f"storage class with {SHARED}, or use the overlay single-node."
            )


def parse_networks(items: Iterable[str]) -> tuple[Network, ...]:
    """`--deny-egress` words as address ranges. Raises ConfigError for what is none."""
    try:
        return tuple(map(ip_network, items))
    except ValueError as error:
        raise ConfigError(f"--deny-egress: {error}. Give a range such as 34.118.224.0/20, or one address.") from None


def load_overlay(name: str, tree: Path = KUBERNETES) -> Overlay:
    """The overlay of this name. Raises ConfigError if the overlay, its tree or its node shape is missing or wrong."""
    overlays = tree / "overlays"
    if not overlays.is_dir():
        raise ConfigError(f"{tree}: has no overlays/. Give a copy of the repository's k8s/ folder as --manifests.")
    known = sorted(path.parent.name for path in overlays.glob("*/overlay.yaml"))
    if name not in known:
        raise ConfigError(f"--overlay {name!r}: unknown overlay. Choose one of {', '.join(known)}.")
    path = (overlays / name).resolve()
    return Overlay(path, _read_shape(path / "overlay.yaml"))


def _read_shape(path: Path) -> NodeShape:
    try:
        return NodeShape.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, ValidationError) as error:
        raise ConfigError(f"{path}: gpus_per_node, max_nodes and cpus_per_node are needed: {error}") from None
