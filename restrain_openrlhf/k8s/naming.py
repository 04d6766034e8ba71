"""What belongs to one experiment has its name: objects, labels, and the selectors that keep other experiments out."""

import hashlib
import re
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

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


def named(objects: Iterable[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Copies of an experiment's objects that no other experiment has: `reference` becomes `reference-NAME`.

    A ConfigMap keeps its generated name, which ends in a hash of the configuration, the run's folder included.
    """
    return [_named(deepcopy(each), name) for each in objects]


def _named(each: dict[str, Any], name: str) -> dict[str, Any]:
    _fill(each, name)
    metadata = each["metadata"]
    metadata["labels"] = {**metadata.get("labels", {}), EXPERIMENT: name}
    if each["kind"] != "ConfigMap":
        metadata["name"] = f"{metadata['name']}-{name}"
    return each


def _fill(node: Any, name: str) -> None:
    """Every label and selector of the key takes the name as its value."""
    if isinstance(node, dict):
        if EXPERIMENT in node:
            node[EXPERIMENT] = name
        for value in node.values():
            _fill(value, name)
    elif isinstance(node, list):
        for value in node:
            _fill(value, name)
