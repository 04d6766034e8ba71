"""Renders one experiment over one overlay: a kustomization on top of the overlay, built, checked, split into steps."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.evaluation.benchmarks import PAPER_BENCHMARKS
from restrain_openrlhf.k8s.cluster import Cluster
from restrain_openrlhf.k8s.experiment import Experiment
from restrain_openrlhf.k8s.images import configured_images, refuse_unknown, refuse_unset
from restrain_openrlhf.k8s.kustomize import build
from restrain_openrlhf.k8s.naming import Manifest, named
from restrain_openrlhf.k8s.overlay import Overlay
from restrain_openrlhf.k8s.patches import patches
from restrain_openrlhf.k8s.stages import (
    SHARED,
    Stage,
    by_stage,
    images_in,
    refuse_unread_pass,
    stage_of,
    stages_of,
)

# What is rendered has no unset image, but its objects were marked before they got another one.
UNMARK = {
    "target": {"annotationSelector": "restrain-openrlhf/image-registry=registry.invalid"},
    "operations": [{"op": "remove", "path": "/metadata/annotations/restrain-openrlhf~1image-registry"}],
}


@dataclass(frozen=True)
class Rendering:
    """What to render: `images` overrides the tree's (name to reference by digest); no `only` means the usual steps.

    `components` are those of the tree that are added to the overlay's. `benchmarks` are names.
    """

    experiment: Experiment
    overlay: Overlay
    benchmarks: tuple[str, ...] = PAPER_BENCHMARKS
    images: Mapping[str, str] = field(default_factory=dict)
    only: tuple[Stage, ...] = ()
    cluster: Cluster = field(default_factory=Cluster)
    components: tuple[str, ...] = ()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The steps that are written."""
        return self.only or stages_of(self.experiment)


def render(rendering: Rendering) -> Mapping[Stage, list[Manifest]]:
    """The manifests of each step, in order.

    Raises ConfigError for an image without a digest, a step that the overlay lacks, an offline pass that is not made,
    volumes that its pods cannot share, or where Kustomize is missing.
    """
    refuse_unread_pass(rendering.experiment, rendering.stages)
    refuse_unknown(rendering.images, configured_images(rendering.overlay.tree))
    overlay = build(rendering.overlay.path)
    by_stage(overlay, rendering.stages)
    with tempfile.TemporaryDirectory(prefix="restrain-k8s-") as folder:
        write_kustomization(rendering, overlay, Path(folder).resolve())
        manifests = build(Path(folder).resolve())
    found = by_stage(manifests, rendering.stages)
    rendering.cluster.refuse_one_node(each["kind"] for objects in found.values() for each in objects)
    refuse_unset(image for objects in found.values() for image in images_in(objects))
    name = rendering.experiment.name
    return {stage: objects if stage in SHARED else named(objects, name) for stage, objects in found.items()}


def write_kustomization(rendering: Rendering, overlay: Sequence[Manifest], folder: Path) -> None:
    """Write the experiment as a kustomization on top of the overlay, whose objects these are."""
    (folder / "experiment.yaml").write_text(rendering.experiment.text, encoding="utf-8")
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        # Kustomize takes a base by a relative path alone.
        "resources": [os.path.relpath(rendering.overlay.path, folder)],
        "components": [os.path.relpath(path, folder) for path in _components(rendering)],
        "configMapGenerator": [
            {"name": f"{job}-experiment", "behavior": "replace", "files": ["experiment.yaml"]}
            for job in {rendering.experiment.job} & {stage_of(each) for each in overlay}
        ],
        "patches": [_as_text(patch) for patch in (*_present(rendering, overlay), *rendering.cluster.patches(), UNMARK)],
        "images": [_image(name, reference) for name, reference in _new_images(rendering)],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization, sort_keys=False), encoding="utf-8")


def _present(rendering: Rendering, overlay: Sequence[Manifest]) -> list[dict[str, Any]]:
    """The patches whose target is in the overlay; Kustomize refuses others."""
    names = {(each["kind"], each["metadata"]["name"]) for each in overlay}
    every = patches(rendering.experiment, rendering.benchmarks)
    return [patch for patch in every if (patch["target"]["kind"], patch["target"]["name"]) in names]


def _components(rendering: Rendering) -> Sequence[Path]:
    """Raises ConfigError for a component that the tree does not have."""
    folder = rendering.overlay.tree / "components"
    known = sorted(path.parent.name for path in folder.glob("*/kustomization.yaml"))
    for name in rendering.components:
        if name not in known:
            raise ConfigError(f"--component {name!r}: unknown component. Choose one of {', '.join(known)}.")
    return [folder / name for name in rendering.components]


def _as_text(patch: dict[str, Any]) -> dict[str, Any]:
    return {"target": patch["target"], "patch": yaml.safe_dump(patch["operations"], sort_keys=False)}


def _new_images(rendering: Rendering) -> list[tuple[str, str]]:
    """Under the names that the images component has given them already."""
    configured = configured_images(rendering.overlay.tree)
    return [(configured[name].partition("@")[0], reference) for name, reference in rendering.images.items()]


def _image(name: str, reference: str) -> dict[str, str]:
    repository, _, digest = reference.partition("@")
    return {"name": name, "newName": repository, "digest": digest}
