"""Which image each job runs, always by digest: from the tree's images component, or named when rendering."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from restrain_openrlhf.errors import ConfigError

UNSET_HOST = "registry.invalid/"
BY_DIGEST = re.compile(r"(?P<name>[a-z0-9][a-zA-Z0-9._:/-]*)@(?P<digest>sha256:[0-9a-f]{64})")


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


def refuse_unknown(named: Mapping[str, str], configured: Mapping[str, str]) -> None:
    """Raises ConfigError for an image that no manifest has."""
    for name in named:
        if name not in configured:
            raise ConfigError(f"--image {name}=...: no manifest has it. The images are {', '.join(configured)}.")


def refuse_unset(used: Iterable[str]) -> None:
    """Raises ConfigError naming the first image that has no digest, or the placeholder's."""
    for image in sorted(set(used)):
        if image.startswith(UNSET_HOST) or not BY_DIGEST.fullmatch(image):
            name = image.removeprefix(UNSET_HOST).partition("@")[0]
            raise ConfigError(
                f"The image {name} has no digest. Build and push it (docs/operations/kubernetes.md), then render with "
                f"--image {name}=REGISTRY/{name}@sha256:... or set it in k8s/components/images."
            )
