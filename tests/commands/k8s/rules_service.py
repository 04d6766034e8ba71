"""Checklist rules about networks, the reward service and monitoring."""

import json
import re
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Any

import yaml

from restrain_openrlhf.scoring.service.service_config import Timing
from tests.commands.k8s.manifests import Object, Pod, of_kind, pick, pods

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


def policies_select_pods(objects: list[Object]) -> Iterator[str]:
    found = list(pods(objects))
    for each in of_kind(objects, "NetworkPolicy"):
        if not any(matches(each["spec"]["podSelector"], pod.labels) for pod in found):
            yield f"NetworkPolicy/{each['metadata']['name']}: selects no pod"
        for rule in each["spec"].get("ingress", []):
            for port in rule.get("ports", []):
                if not any(port["port"] in _ports(pod).values() for pod in found):
                    yield f"NetworkPolicy/{each['metadata']['name']}: opens port {port['port']}, which no pod has"


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


def selectors_match(objects: list[Object]) -> Iterator[str]:
    found = list(pods(objects))
    for each in of_kind(objects, "Deployment"):
        if not matches(each["spec"]["selector"], each["spec"]["template"]["metadata"]["labels"]):
            yield f"Deployment/{each['metadata']['name']}: does not select its own pods"
    for each in of_kind(objects, "PodDisruptionBudget"):
        if not any(matches(each["spec"]["selector"], pod.labels) for pod in found):
            yield f"PodDisruptionBudget/{each['metadata']['name']}: selects no pod"
    for each in of_kind(objects, "Service"):
        behind = [pod for pod in found if matches({"matchLabels": each["spec"]["selector"]}, pod.labels)]
        if not behind:
            yield f"Service/{each['metadata']['name']}: selects no pod"
        for port in each["spec"]["ports"]:
            if any(port["targetPort"] not in {*_ports(pod), *_ports(pod).values()} for pod in behind):
                yield f"Service/{each['metadata']['name']}: port {port['targetPort']} is not its pods'"


def _ports(pod: Pod) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for each in pod.containers for port in each.get("ports", [])}


def clients_reach_the_service(objects: list[Object]) -> Iterator[str]:
    """Whoever carries the client's label reaches the reward pods' port, as far as both are here, and has a token."""
    service = [pod for pod in pods(objects) if pod.labels.get("app.kubernetes.io/component") == "reward"]
    for pod in pods(objects):
        if pod.role in ("head", "worker") and pod.labels.get(CLIENT) != "true":
            yield f"{pod.name}: is no client of the reward service"
        if pod.labels.get(CLIENT) == "true":
            if "RESTRAIN_TOKEN" not in {each["name"] for each in pod.spec["containers"][0].get("env", [])}:
                yield f"{pod.name}: has no token for the reward service"
            if any(not _reaches_across(objects, pod, each) for each in service):
                yield f"{pod.name}: does not reach the reward service"


CLIENT = "restrain-reward-client"


def _reaches_across(objects: list[Object], source: Pod, target: Pod) -> bool:
    """Whether rules of each pod's own namespace, for ports of the target, let the source out and in."""
    return all(
        any(
            matches(side["podSelector"], peer.labels) and matches(side["namespaceSelector"], _namespace_labels(peer))
            for rule in _rules_for(objects, owner, direction)
            if {port["port"] for port in rule.get("ports", [])} & set(_ports(target).values())
            for side in rule[key]
            if "namespaceSelector" in side
        )
        for owner, peer, direction, key in ((source, target, "egress", "to"), (target, source, "ingress", "from"))
    )


def _namespace_labels(pod: Pod) -> dict[str, str]:
    return {"kubernetes.io/metadata.name": pod.owner["metadata"]["namespace"]}


def gathered_in_one_process(objects: list[Object]) -> Iterator[str]:
    """A Deployment whose configuration gathers single rollouts has one pod at any time: two would split the groups."""
    for each in of_kind(objects, "Deployment"):
        spec, name = each["spec"], f"Deployment/{each['metadata']['name']}"
        if not _group_size(objects, each):
            continue
        scaled = {scaler["spec"]["scaleTargetRef"]["name"] for scaler in of_kind(objects, "HorizontalPodAutoscaler")}
        budgets = [
            budget["spec"]
            for budget in of_kind(objects, "PodDisruptionBudget")
            if matches(budget["spec"]["selector"], spec["template"]["metadata"]["labels"])
        ]
        wrong = {
            "has not one replica": spec.get("replicas") != 1,
            "is scaled": each["metadata"]["name"] in scaled,
            "starts its successor before it ends": spec["strategy"]["type"] != "Recreate",
            "lets no node be drained": any(not budget.get("maxUnavailable") for budget in budgets),
        }
        yield from (f"{name}: gathers rollouts and {problem}" for problem, is_so in wrong.items() if is_so)


def _group_size(objects: list[Object], deployment: Object) -> int | None:
    """`service.group_size`; None where it scores whole groups alone."""
    return (_configuration(objects, deployment).get("service") or {}).get("group_size")


def _configuration(objects: list[Object], deployment: Object) -> dict[str, Any]:
    """The reward service's configuration that a Deployment mounts; empty where it mounts none."""
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    mounted = {each["configMap"]["name"] for each in volumes if "configMap" in each}
    for each in of_kind(objects, "ConfigMap"):
        if each["metadata"]["name"] in mounted and "reward.yaml" in each["data"]:
            return yaml.safe_load(each["data"]["reward.yaml"])
    return {}


def _drain_seconds(objects: list[Object], deployment: Object) -> float:
    """From SIGTERM to the last reply, by the configuration that the pods mount."""
    timing = Timing.model_validate((_configuration(objects, deployment).get("service") or {}).get("timing") or {})
    return timing.drain_notice + timing.drain


def reward_service(objects: list[Object]) -> Iterator[str]:
    """Probes, two replicas or more, no gap on updates, drained before it is killed, spread."""
    deployment = pick(objects, "Deployment", "reward")
    spec = deployment["spec"]
    pod, container = spec["template"]["spec"], spec["template"]["spec"]["containers"][0]
    scaler = pick(objects, "HorizontalPodAutoscaler", "reward")["spec"]
    probes = {
        kind: container.get(f"{kind}Probe", {}).get("httpGet", {}).get("path")
        for kind in ("startup", "readiness", "liveness")
    }
    drain = _drain_seconds(objects, deployment) + container.get("lifecycle", {}).get("preStop", {}).get(
        "sleep", {}
    ).get("seconds", 10**9)
    wrong = {
        "has other probes than the service answers": probes
        != {"startup": "/readyz", "readiness": "/readyz", "liveness": "/healthz"},
        "is killed because it is busy": _patience(container.get("livenessProbe", {})) < BUSY_SECONDS,
        "replicas are fixed beside an autoscaler": "replicas" in spec,
        "an update may leave a gap": spec["strategy"]["rollingUpdate"]["maxUnavailable"] != 0,
        "fewer than two replicas": scaler["minReplicas"] < 2,
        "autoscaler's bounds are crossed": scaler["minReplicas"] > scaler["maxReplicas"],
        "autoscaler has another target": scaler["scaleTargetRef"]["name"] != "reward",
        "is killed while it drains": drain >= pod["terminationGracePeriodSeconds"],
        "is not spread over nodes": not pod.get("topologySpreadConstraints"),
        "no disruption budget": not of_kind(objects, "PodDisruptionBudget"),
    }
    yield from (f"Deployment/reward: {problem}" for problem, is_so in wrong.items() if is_so)


def _patience(probe: dict[str, Any]) -> int:
    """Seconds that a probe may go unanswered, by Kubernetes' defaults where it says nothing."""
    return probe.get("failureThreshold", 3) * min(probe.get("timeoutSeconds", 1), probe.get("periodSeconds", 10))


# A probe is answered by the loop that answers the requests, and waits behind them.
BUSY_SECONDS = 30


def monitors_match(objects: list[Object]) -> Iterator[str]:
    found = list(pods(objects))
    for each in of_kind(objects, "PodMonitor"):
        selected = [pod for pod in found if matches(each["spec"]["selector"], pod.labels)]
        for endpoint in each["spec"]["podMetricsEndpoints"]:
            if not selected or any(endpoint["port"] not in _ports(pod) for pod in selected):
                yield f"PodMonitor/{each['metadata']['name']}: port {endpoint['port']} is not its pods'"
    services = of_kind(objects, "Service")
    for each in of_kind(objects, "ServiceMonitor"):
        selected = [service for service in services if matches(each["spec"]["selector"], service["metadata"]["labels"])]
        for endpoint in each["spec"]["endpoints"]:
            if not any(endpoint["port"] == port["name"] for service in selected for port in service["spec"]["ports"]):
                yield f"ServiceMonitor/{each['metadata']['name']}: port {endpoint['port']} is not its services'"


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
