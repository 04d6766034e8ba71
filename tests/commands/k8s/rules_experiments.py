"""Rules: what belongs to one experiment is its own, and what is applied again takes nothing from anyone."""

import re
from collections.abc import Iterator
from typing import Any

from restrain_openrlhf.commands.k8s.stages import EXPERIMENT, SHARED, stage_of
from tests.commands.k8s.manifests import Object, Pod, of_kind, pods
from tests.commands.k8s.rules_service import matches
from tests.conftest import ROOT

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
    inside = [side["podSelector"] for side in sides if _is_inside(side)]
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


def secrets_are_made_by_the_page(objects: list[Object]) -> Iterator[str]:
    """A secret is in no manifest: the page says how each one, with the key that is read, is made."""
    page = (ROOT / "docs" / "operations" / "kubernetes.md").read_text(encoding="utf-8")
    made = set(re.findall(r"create secret generic (\S+) --from-file=([\w-]+)", page))
    for pod in pods(objects):
        variables = [each for container in pod.containers for each in container.get("env", [])]
        sources = [each["valueFrom"]["secretKeyRef"] for each in variables if "valueFrom" in each]
        volumes = [each["secret"] for each in pod.spec.get("volumes", []) if "secret" in each]
        named = {(each["name"], each["key"]) for each in sources}
        named |= {(each["secretName"], item["key"]) for each in volumes for item in each["items"]}
        yield from (f"{pod.name}: nobody is told to make the secret {name}, key {key}" for name, key in named - made)


def policies_name_what_is_there(objects: list[Object]) -> Iterator[str]:
    """A rule about pods of this namespace names some, and ports that the pods behind them have."""
    found = list(pods(objects))
    for each in of_kind(objects, "NetworkPolicy"):
        name, spec = f"NetworkPolicy/{each['metadata']['name']}", each["spec"]
        selected = [pod for pod in found if matches(spec["podSelector"], pod.labels)]
        for direction, side in (("ingress", "from"), ("egress", "to")):
            for rule in spec.get(direction, []):
                inside = [peer["podSelector"] for peer in rule[side] if _is_inside(peer)]
                peers = [pod for selector in inside for pod in found if matches(selector, pod.labels)]
                if inside and not peers:
                    yield f"{name}: {direction} names pods that are not there"
                for port in rule.get("ports", []) if inside else []:
                    if not any(port["port"] in _ports(pod) for pod in (selected if direction == "ingress" else peers)):
                        yield f"{name}: {direction} names port {port['port']}, which nobody has"


def _is_inside(peer: dict[str, Any]) -> bool:
    return "podSelector" in peer and "namespaceSelector" not in peer


def _ports(pod: Pod) -> set[int]:
    return {port["containerPort"] for each in pod.containers for port in each.get("ports", [])}
