"""What belongs to one experiment has its name: objects, labels, and the selectors that keep other experiments out."""

import hashlib
import re
from collections.abc import Container, Iterable
from copy import deepcopy
from typing import Any

Manifest = dict[str, Any]
# On every pod of an experiment, and in the selectors of its network policies. The tree's own value stands for none.
EXPERIMENT = "restrain-experiment"
# KubeRay refuses longer names of RayJobs: it appends suffixes for the cluster and its services.
LONGEST_NAME = 47
LONGEST_PREFIX = "test-time-"


def run_name(text: str) -> str:
    """A DNS-1035 label of at most 37 characters, so that a step's name fits before it.

    A text that is not such a label itself ends in a hash of it: other texts have other names.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "run"
    slug = slug if slug[0].isalpha() else f"run-{slug}"
    longest = LONGEST_NAME - len(LONGEST_PREFIX)
    if slug == text and len(slug) <= longest:
        return slug
    digest = hashlib.sha256(text.encode()).hexdigest()[:6]
    return f"{slug[: longest - 7].rstrip('-')}-{digest}"


def named(objects: Iterable[Manifest], name: str) -> list[Manifest]:
    """Copies of an experiment's objects that no other experiment has: `reference` becomes `reference-NAME`."""
    copies = deepcopy(list(objects))
    configs = {each["metadata"]["name"] for each in copies if each["kind"] == "ConfigMap"}
    for each in copies:
        _fill(each, name, configs)
        metadata = each["metadata"]
        metadata["name"] = f"{metadata['name']}-{name}"
        metadata["labels"] = {**metadata.get("labels", {}), EXPERIMENT: name}
    return copies


def _fill(node: Any, name: str, configs: Container[str]) -> None:
    """Labels and selectors of the key take the name as their value; volumes follow the ConfigMaps' new names."""
    if isinstance(node, dict):
        if EXPERIMENT in node:
            node[EXPERIMENT] = name
        if (mounted := node.get("configMap")) and mounted["name"] in configs:
            mounted["name"] = f"{mounted['name']}-{name}"
        for value in node.values():
            _fill(value, name, configs)
    elif isinstance(node, list):
        for value in node:
            _fill(value, name, configs)
