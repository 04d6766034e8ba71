"""Rules: what belongs to one experiment is its own, and what is applied again takes nothing from anyone."""

from collections.abc import Iterator
from typing import Any

from restrain_openrlhf.k8s.naming import EXPERIMENT
from restrain_openrlhf.k8s.stages import SHARED, stage_of
from tests.k8s.manifests import Object, of_kind, pods

# What a server or a controller writes; a manifest that holds it conflicts with its owner when it is applied again.
SERVERS_OWN = {"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "ownerReferences"}


def own(objects: list[Object]) -> list[Object]:
    """The objects of experiments: all but the platform's, the administrator's and the reward service's."""
    return [each for each in objects if stage_of(each) not in SHARED]


def identity(each: Object) -> tuple[str, str | None, str]:
    return each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]


def experiments_are_apart(objects: list[Object]) -> Iterator[str]:
    """Objects, pods and policies of an experiment carry its label; their names end in it."""
    for each in own(objects):
        # In the tree, before `restrain k8s render`, the label says "none" and an object has its step's name alone.
        name, label = each["metadata"]["name"], each["metadata"].get("labels", {}).get(EXPERIMENT, "none")
        if label != "none" and not name.endswith(f"-{label}"):
            yield f"{each['kind']}/{name}: another experiment has this name too"
        if set(_values(each)) - {label}:
            yield f"{each['kind']}/{name}: is another experiment's in part"
        if each["kind"] == "NetworkPolicy":
            yield from (f"NetworkPolicy/{name}: reaches into other experiments" for _ in _open_selectors(each))
    for pod in pods(own(objects)):
        if EXPERIMENT not in pod.labels:
            yield f"{pod.name}: carries no experiment's label"


def _values(node: Any) -> Iterator[str]:
    """All values of the label and of selectors on it, at any depth."""
    if isinstance(node, dict):
        yield from ([node[EXPERIMENT]] if EXPERIMENT in node else [])
        for value in node.values():
            yield from _values(value)
    elif isinstance(node, list):
        for value in node:
            yield from _values(value)


def _open_selectors(policy: Object) -> Iterator[dict[str, Any]]:
    """Selectors of this namespace's pods that do not ask for the experiment."""
    spec = policy["spec"]
    rules = [*spec.get("ingress", []), *spec.get("egress", [])]
    sides = [side for rule in rules for side in [*rule.get("from", []), *rule.get("to", [])]]
    inside = [side["podSelector"] for side in sides if "podSelector" in side and "namespaceSelector" not in side]
    for selector in (spec["podSelector"], *inside):
        if EXPERIMENT not in selector.get("matchLabels", {}):
            yield selector


def nothing_needs_a_force(objects: list[Object]) -> Iterator[str]:
    """No manifest sets what a controller sets later: applying it again would conflict, or undo the controller."""
    scaled = {each["spec"]["scaleTargetRef"]["name"] for each in of_kind(objects, "HorizontalPodAutoscaler")}
    for each in objects:
        name, spec = f"{each['kind']}/{each['metadata']['name']}", each.get("spec") or {}
        if each["kind"] in ("Job", "RayJob") and "suspend" in spec:
            yield f"{name}: sets suspend, which a queue sets"
        if each["kind"] == "Deployment" and each["metadata"]["name"] in scaled and "replicas" in spec:
            yield f"{name}: sets replicas, which its autoscaler sets"
        if "status" in each or SERVERS_OWN & set(each["metadata"]):
            yield f"{name}: holds what the server writes"
