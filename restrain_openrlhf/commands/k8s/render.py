"""Renders one experiment over one overlay: a kustomization on top, built by Kustomize, checked, split into steps."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from restrain_openrlhf.commands.k8s.experiment import Experiment
from restrain_openrlhf.commands.k8s.overlay import Cluster, Overlay
from restrain_openrlhf.commands.k8s.patches import Patch, patches
from restrain_openrlhf.commands.k8s.stages import (
    SHARED,
    Manifest,
    Stage,
    by_stage,
    mappings,
    named,
    refuse_unread_pass,
    stage_of,
    stages_of,
)
from restrain_openrlhf.data.benchmarks import PAPER_BENCHMARKS
from restrain_openrlhf.errors import ConfigError

OLDEST_KUSTOMIZE = 5
# Each program's version, and how it renders a folder.
PROGRAMS = (
    (["kustomize", "version"], ["kustomize", "build"]),
    (["kubectl", "version", "--client"], ["kubectl", "kustomize"]),
)
# libyaml is ten times as fast on thousands of lines, where PyYAML has it.
LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
UNSET_HOST = "registry.invalid/"
BY_DIGEST = re.compile(r"(?P<name>[a-z0-9][a-zA-Z0-9._:/-]*)@(?P<digest>sha256:[0-9a-f]{64})")
# What is rendered has no unset image, but its objects were marked before they got another one.
UNMARK = {
    "target": {"annotationSelector": "restrain-openrlhf/image-registry=registry.invalid"},
    "operations": [{"op": "remove", "path": "/metadata/annotations/restrain-openrlhf~1image-registry"}],
}


def render(
    experiment: Experiment,
    overlay: Overlay,
    cluster: Cluster,
    benchmarks: Sequence[str] = PAPER_BENCHMARKS,
    only: Sequence[Stage] = (),
) -> Mapping[Stage, list[Manifest]]:
    """The manifests of each step, in order: of `only`, else of those that the experiment needs.

    Raises ConfigError for an image without a digest, a step that the overlay lacks, an offline pass that is not made,
    volumes that its pods cannot share, or where Kustomize is missing.
    """
    stages = only or stages_of(experiment)
    refuse_unread_pass(experiment, stages)
    images = _new_images(cluster.images, overlay)
    base = build(overlay.path)
    by_stage(base, stages)
    with tempfile.TemporaryDirectory(prefix="restrain-k8s-") as made:
        folder = Path(made).resolve()
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            # Kustomize takes a base by a relative path alone.
            "resources": [os.path.relpath(overlay.path, folder)],
            "components": [os.path.relpath(path, folder) for path in _components(cluster, overlay)],
            "configMapGenerator": [
                {"name": f"{job}-experiment", "behavior": "replace", "files": ["experiment.yaml"]}
                for job in {experiment.job} & {stage_of(each) for each in base}
            ],
            "patches": [
                {"target": patch["target"], "patch": yaml.safe_dump(patch["operations"], sort_keys=False)}
                for patch in (*_present(patches(experiment, benchmarks), base), *cluster.patches(), UNMARK)
            ],
            "images": images,
        }
        (folder / "experiment.yaml").write_text(experiment.text, encoding="utf-8")
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization, sort_keys=False), encoding="utf-8")
        found = by_stage(build(folder), stages)
    every = [each for objects in found.values() for each in objects]
    cluster.refuse_one_node(each["kind"] for each in every)
    _refuse_unset(every)
    return {stage: objects if stage in SHARED else named(objects, experiment.name) for stage, objects in found.items()}


def _present(changes: Sequence[Patch], objects: Sequence[Manifest]) -> list[Patch]:
    """Those whose target is among the objects; Kustomize refuses others."""
    names = {(each["kind"], each["metadata"]["name"]) for each in objects}
    return [patch for patch in changes if (patch["target"]["kind"], patch["target"]["name"]) in names]


def build(folder: Path) -> list[Manifest]:
    """All objects of a kustomization. Raises ConfigError with Kustomize's own words, or where there is no Kustomize."""
    done = _run([*kustomize_command(), str(folder)])
    if done.returncode != 0:
        raise ConfigError(f"Kustomize refuses {folder}: {done.stderr.strip()}")
    return [each for each in yaml.load_all(done.stdout, LOADER) if each]


def kustomize_command() -> list[str]:
    """The words that render a folder. Raises ConfigError where neither program is there, or only an old one."""
    tried = []
    for version, words in PROGRAMS:
        if shutil.which(words[0]) is None:
            continue
        found = re.search(r"(?:Kustomize Version: )?v(\d+)\.\d+\.\d+\s*$", _run(version).stdout.strip(), re.MULTILINE)
        if found and int(found[1]) >= OLDEST_KUSTOMIZE:
            return words
        tried.append(words[0])
    old = f" {' and '.join(tried)} brings an older one." if tried else ""
    raise ConfigError(
        f"Kustomize {OLDEST_KUSTOMIZE} or newer is needed to render.{old} Install kubectl 1.29 or newer, or kustomize."
    )


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


def _components(cluster: Cluster, overlay: Overlay) -> list[Path]:
    """Raises ConfigError for a component that the tree does not have."""
    folder = overlay.tree / "components"
    known = sorted(path.parent.name for path in folder.glob("*/kustomization.yaml"))
    for name in cluster.components:
        if name not in known:
            raise ConfigError(f"--component {name!r}: unknown component. Choose one of {', '.join(known)}.")
    return [folder / name for name in cluster.components]


def parse_images(items: Iterable[str]) -> dict[str, str]:
    """`--image restrain-train=REGISTRY/NAME@sha256:...` words as a mapping. Raises ConfigError for any other form."""
    images = {}
    for item in items:
        name, _, reference = item.partition("=")
        if not name or not BY_DIGEST.fullmatch(reference):
            raise ConfigError(f"--image {item!r}: give NAME=REGISTRY/REPOSITORY@sha256:<64 hex digits>; no tags.")
        images[name] = reference
    return images


def configured_images(tree: Path) -> dict[str, str]:
    """What `k8s/components/images` says now, unset values included."""
    path = tree / "components" / "images" / "kustomization.yaml"
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))["images"]
    return {entry["name"]: f"{entry.get('newName', entry['name'])}@{entry.get('digest', '')}" for entry in entries}


def _new_images(images: Mapping[str, str], overlay: Overlay) -> list[dict[str, str]]:
    """Under the names that the images component has given them. Raises ConfigError for one that no manifest has."""
    configured = configured_images(overlay.tree)
    for name in images:
        if name not in configured:
            raise ConfigError(f"--image {name}=...: no manifest has it. The images are {', '.join(configured)}.")
    new = [(configured[name].partition("@")[0], reference.partition("@")) for name, reference in images.items()]
    return [{"name": name, "newName": repository, "digest": digest} for name, (repository, _, digest) in new]


def _refuse_unset(manifests: Sequence[Manifest]) -> None:
    """Raises ConfigError naming the first image that has no digest, or the placeholder's."""
    used = {node["image"] for each in manifests for node in mappings(each) if isinstance(node.get("image"), str)}
    for image in sorted(used):
        if image.startswith(UNSET_HOST) or not BY_DIGEST.fullmatch(image):
            name = image.removeprefix(UNSET_HOST).partition("@")[0]
            raise ConfigError(
                f"The image {name} has no digest. Build and push it (docs/operations/kubernetes.md), then render with "
                f"--image {name}=REGISTRY/{name}@sha256:... or set it in k8s/components/images."
            )
