"""What differs from cluster to cluster: volumes, addresses closed to downloads, the label that Prometheus asks for."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

from restrain_openrlhf.errors import ConfigError

Network = IPv4Network | IPv6Network
SHARED, ONE_NODE = "ReadWriteMany", "ReadWriteOnce"
QUANTITY = re.compile(r"[1-9]\d*(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?")
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
DOWNLOADS = "prefetch|data|benchmarks"
MONITORS = "PodMonitor|ServiceMonitor|PrometheusRule"


@dataclass(frozen=True)
class Cluster:
    """Values of `restrain k8s render`'s options; None and nothing leave what the overlay says.

    `sizes` are of the claims `models` and `work`, such as 500Gi. `closed` are address ranges beside the private ones.
    """

    storage_class: str | None = None
    access_mode: str | None = None
    sizes: Mapping[str, str] = field(default_factory=dict)
    closed: tuple[Network, ...] = ()
    prometheus_release: str | None = None

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
        return [*self._claims(), *self._egress(), *self._label()]

    def refuse_one_node(self, kinds: Iterable[str]) -> None:
        """Raises ConfigError where pods of several nodes would share a volume of one."""
        if self.access_mode == ONE_NODE and "RayJob" in set(kinds):
            raise ConfigError(
                f"--access-mode {ONE_NODE}: the pods of a Ray cluster are on several nodes and share volumes. Give a "
                f"storage class with {SHARED}, or use the overlay single-node."
            )

    def _claims(self) -> list[dict[str, Any]]:
        named = {
            "/spec/storageClassName": self.storage_class,
            "/spec/accessModes": self.access_mode and [self.access_mode],
        }
        both = [{"op": "add", "path": path, "value": value} for path, value in named.items() if value]
        sized = {claim: [_replace("/spec/resources/requests/storage", size)] for claim, size in self.sizes.items()}
        every = [({"kind": "PersistentVolumeClaim"}, both)]
        every += [({"kind": "PersistentVolumeClaim", "name": claim}, change) for claim, change in sized.items()]
        return [{"target": target, "operations": operations} for target, operations in every if operations]

    def _egress(self) -> list[dict[str, Any]]:
        # The two blocks of each policy: IPv4 and IPv6, in this order.
        path = "/spec/egress/0/to/{}/ipBlock/except/-"
        changes = [
            {"op": "add", "path": path.format(int(isinstance(net, IPv6Network))), "value": str(net)}
            for net in self.closed
        ]
        target = {"kind": "NetworkPolicy", "name": DOWNLOADS}
        return [{"target": target, "operations": changes}] if changes else []

    def _label(self) -> list[dict[str, Any]]:
        if self.prometheus_release is None:
            return []
        change = {"op": "add", "path": "/metadata/labels/release", "value": self.prometheus_release}
        return [{"target": {"kind": MONITORS}, "operations": [change]}]


def parse_networks(items: Iterable[str]) -> tuple[Network, ...]:
    """`--deny-egress` words as address ranges. Raises ConfigError for what is none."""
    try:
        return tuple(map(ip_network, items))
    except ValueError as error:
        raise ConfigError(f"--deny-egress: {error}. Give a range such as 34.118.224.0/20, or one address.") from None


def _replace(path: str, value: object) -> dict[str, Any]:
    return {"op": "replace", "path": path, "value": value}
