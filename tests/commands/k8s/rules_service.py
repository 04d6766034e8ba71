"""Rules: who reaches whom by the network policies, and which metrics alerts and dashboards ask for."""

import json
import re
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Any

from tests.commands.k8s.manifests import Object, Pod, of_kind, pods

METRIC = re.compile(r"\b(?:ray_)?restrain_[a-z0-9_]+\b")


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """A label selector on labels; an empty one selects everything."""
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    return all(labels.get(each["key"]) in each["values"] for each in selector.get("matchExpressions", []))


def default_deny(objects: list[Object]) -> Iterator[str]:
    """Every namespace denies all by default, both ways; no rule lets everyone in, or out to everywhere."""
    policies = of_kind(objects, "NetworkPolicy")
    denies = [
        each
        for each in policies
        if each["spec"]["podSelector"] == {}
        and set(each["spec"].get("policyTypes", [])) == {"Ingress", "Egress"}
        and not each["spec"].get("ingress")
        and not each["spec"].get("egress")
    ]
    if not denies:
        yield "nothing is denied by default"
    for each in policies:
        name, spec = each["metadata"]["name"], each["spec"]
        for rule, peers in [(r, "from") for r in spec.get("ingress", [])] + [(r, "to") for r in spec.get("egress", [])]:
            if not rule.get(peers) or {} in rule[peers]:
                yield f"NetworkPolicy/{name}: lets anyone through"
            for peer in rule.get(peers, []):
                if "ipBlock" in peer and not _is_way_out(each, peer["ipBlock"]):
                    yield f"NetworkPolicy/{name}: opens addresses outside the cluster"


# A cloud's metadata service, and where API servers and services of clusters are.
NEVER_OUT = ("169.254.169.254", "fd00:ec2::254", "10.96.0.1", "172.20.0.1", "192.168.0.1", "100.64.0.1", "fe80::1")


def _is_way_out(policy: Object, block: dict[str, Any]) -> bool:
    """Whether a policy of what downloads leaves the metadata service and private addresses out, or is DNS alone."""
    if policy["metadata"]["name"] == "dns":
        ports = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
        return ports == {53} and ip_network(block["cidr"]).num_addresses == 1
    step = policy["metadata"]["labels"]["app.kubernetes.io/component"]
    closed = [ip_network(each) for each in block.get("except", [])]
    inside = [each for each in map(ip_address, NEVER_OUT) if each in ip_network(block["cidr"])]
    return step in ("prefetch", "data", "benchmarks") and all(any(each in net for net in closed) for each in inside)


def training_is_reached_by_its_own(objects: list[Object]) -> Iterator[str]:
    """Of our pods, a Ray head is reached by its own cluster and its own submitter."""
    everyone = list(pods(objects))
    for head in (pod for pod in everyone if pod.role == "head"):
        allowed = {pod.name for pod in everyone if reaches(objects, pod, head)}
        own = {pod.name for pod in everyone if pod.owner is head.owner}
        if allowed != own:
            yield f"{head.name}: is reached by {sorted(allowed ^ own)} or not reached by its own"


def reaches(objects: list[Object], source: Pod, target: Pod) -> bool:
    """Whether some policy of the target lets the source in, and some policy of the source lets it out to the target."""
    let_in = _lets(objects, target, source, "ingress", "from")
    return let_in and _lets(objects, source, target, "egress", "to")


def _lets(objects: list[Object], owner: Pod, peer: Pod, direction: str, key: str) -> bool:
    return any(
        not {"namespaceSelector", "ipBlock"} & side.keys() and matches(side.get("podSelector", {}), peer.labels)
        for rule in _rules_for(objects, owner, direction)
        for side in rule[key]
    )


def _rules_for(objects: list[Object], owner: Pod, direction: str) -> Iterator[dict[str, Any]]:
    for each in of_kind(objects, "NetworkPolicy"):
        here = each["metadata"]["namespace"] == owner.owner["metadata"]["namespace"]
        if here and matches(each["spec"]["podSelector"], owner.labels):
            yield from each["spec"].get(direction, [])


def metrics_exist(objects: list[Object], known: set[str]) -> Iterator[str]:
    """Alerts and dashboards ask for metrics that something here really exports."""
    texts = [
        rule["expr"]
        for each in of_kind(objects, "PrometheusRule")
        for g in each["spec"]["groups"]
        for rule in g["rules"]
    ]
    for each in of_kind(objects, "ConfigMap"):
        if each["metadata"].get("labels", {}).get("grafana_dashboard"):
            for name, text in each["data"].items():
                texts += _expressions(json.loads(text), name)
    for text in texts:
        yield from (f"{name} in {text!r}: nothing exports it" for name in METRIC.findall(text) if name not in known)


def _expressions(node: Any, name: str) -> list[str]:
    if isinstance(node, dict):
        own = [node["expr"]] if "expr" in node else []
        return own + [text for value in node.values() for text in _expressions(value, name)]
    return [text for value in node for text in _expressions(value, name)] if isinstance(node, list) else []
