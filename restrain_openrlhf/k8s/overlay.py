"""The overlays of the Kustomize tree, and the GPU nodes that each is for."""

from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.shipped import KUBERNETES


class NodeShape(BaseModel):
    """An overlay's `overlay.yaml`: the GPU nodes it may use for one run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gpus_per_node: int = Field(ge=1)
    max_nodes: int = Field(ge=1)
    cpus_per_node: int = Field(ge=1)
    # GiB of each GPU; None: what a run needs is not checked against it.
    gpu_memory: int | None = Field(default=None, ge=1)


@dataclass(frozen=True)
class Overlay:
    """One folder of `k8s/overlays`."""

    path: Path
    nodes: NodeShape

    @property
    def tree(self) -> Path:
        """The whole Kustomize tree, base and components included."""
        return self.path.parents[1]


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
