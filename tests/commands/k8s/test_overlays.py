"""Every overlay is what an API server accepts, fits its nodes, and has pods that may do nothing beside their work."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from restrain_openrlhf.commands.k8s.cluster import Cluster, load_overlay
from restrain_openrlhf.config.documents import KUBERNETES
from tests.commands.k8s import known_metrics
from tests.commands.k8s.manifests import OVERLAYS, Object, Pod, of_kind, overlay, pods, runs, worker_gpus
from tests.commands.k8s.schemas import problems

DIGEST = re.compile(r"[a-z0-9][a-z0-9._:/-]*@sha256:[0-9a-f]{64}")
METRIC = re.compile(r"\b(?:ray_)?restrain_[a-z0-9_]+\b")


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_api_server_would_accept_every_object(name, shared):
    objects = overlay(name)
    assert [
        (each["kind"], each["metadata"]["name"], p) for each in objects for p in problems(each, shared / "k8s" / "crds")
    ] == []
    names = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects]
    assert len(names) == len(set(names))


def unsafe(pod: Pod, accounts: set[str]) -> Iterator[str]:
    """What the Pod Security Standard `restricted` forbids, and a token that nothing needs.

    Pods that exchange gradients over RDMA may lock memory.
    """
    context, spec = pod.spec.get("securityContext", {}), pod.spec
    if not (context.get("runAsNonRoot") and context.get("runAsUser")):
        yield "may run as root"
    if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "has no seccomp profile"
    if any(spec.get(each) for each in ("hostNetwork", "hostPID", "hostIPC")) or "hostPath" in str(spec.get("volumes")):
        yield "sees its node"
    if spec.get("serviceAccountName") not in accounts or spec.get("automountServiceAccountToken") is not False:
        yield "has another account, or mounts a token"
    for container in pod.containers:
        own = container.get("securityContext", {})
        capabilities = own.get("capabilities", {})
        locks = pod.owner["metadata"]["namespace"].endswith("-rdma") and pod.role == "worker"
        if capabilities.get("drop") != ["ALL"] or set(capabilities.get("add", [])) - ({"IPC_LOCK"} if locks else set()):
            yield "keeps capabilities"
        if own.get("allowPrivilegeEscalation") is not False or own.get("readOnlyRootFilesystem") is not True:
            yield "may escalate privileges, or write to its image"
        if not DIGEST.fullmatch(container["image"]):
            yield f"image {container['image']} is not by digest"


@pytest.mark.parametrize("name", OVERLAYS)
def test_pods_are_restricted_and_their_images_are_by_digest(name):
    accounts = {each["metadata"]["name"] for each in of_kind(overlay(name), "ServiceAccount")}
    assert [(pod.name, each) for pod in pods(overlay(name)) for each in unsafe(pod, accounts)] == []
    assert of_kind(overlay(name), "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "Secret") == []


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """A label selector on labels; an empty one selects everything."""
    within = all(labels.get(each["key"]) in each["values"] for each in selector.get("matchExpressions", []))
    return within and selector.get("matchLabels", {}).items() <= labels.items()


def let_in(objects: list[Object], target: Pod) -> set[str]:
    """Names of the pods that some policy of the target's lets in."""
    policies = [each["spec"] for each in of_kind(objects, "NetworkPolicy")]
    sides = [
        side for spec in policies if matches(spec["podSelector"], target.labels) for side in spec.get("ingress", [])
    ]
    selectors = [peer["podSelector"] for side in sides for peer in side["from"] if peer.keys() == {"podSelector"}]
    return {pod.name for pod in pods(objects) if any(matches(each, pod.labels) for each in selectors)}


@pytest.mark.parametrize("name", OVERLAYS)
def test_all_traffic_is_denied_by_default_and_a_ray_head_is_reached_by_its_own_pods_alone(name):
    objects = overlay(name)
    policies = [each["spec"] for each in of_kind(objects, "NetworkPolicy")]
    empty = [spec for spec in policies if spec["podSelector"] == {} and not spec.keys() & {"ingress", "egress"}]
    assert {"Ingress", "Egress"} in [set(spec["policyTypes"]) for spec in empty]
    assert all(side.get("from") for spec in policies for side in spec.get("ingress", []))
    assert all(side.get("to") for spec in policies for side in spec.get("egress", []))
    for head in (pod for pod in pods(objects) if pod.role == "head"):
        assert let_in(objects, head) == {pod.name for pod in pods(objects) if pod.owner is head.owner}


@pytest.mark.parametrize("name", OVERLAYS)
def test_waiting_for_gpus_uses_up_no_deadline(name):
    """A Job's own clock runs while its pods wait for a quota; a RayJob's shorter first one would use up retries."""
    assert [
        job["metadata"]["name"] for job in of_kind(overlay(name), "Job") if "activeDeadlineSeconds" in job["spec"]
    ] == []
    for job in of_kind(overlay(name), "RayJob"):
        assert job["spec"]["preRunningDeadlineSeconds"] == job["spec"]["activeDeadlineSeconds"] >= 14 * 86_400
    for job in of_kind(overlay(name), "Job"):
        if "backoffLimitPerIndex" in job["spec"]:
            # A lost node's shard is not drawn twice at a time: two pods would write the same files.
            assert job["spec"]["podReplacementPolicy"] == "Failed"


@pytest.mark.parametrize("name", OVERLAYS)
def test_node_shapes_are_what_the_workers_ask_for(name):
    shape = load_overlay(Cluster(overlay=name), KUBERNETES).nodes
    run = next(each for each in runs(overlay(name)) if each["metadata"]["name"] == "train")
    worker = next(pod for pod in pods([run]) if pod.gpus)
    asked = worker.spec["containers"][0]["resources"]["requests"]
    assert (asked["nvidia.com/gpu"], asked["cpu"]) == (str(shape.gpus_per_node), str(shape.cpus_per_node))
    assert worker_gpus(run) <= shape.max_nodes * shape.gpus_per_node


def test_alerts_and_dashboards_ask_for_metrics_that_exist():
    pytest.importorskip("ray", reason="needs Ray, for the hook's gauge names (make install)")
    pytest.importorskip("prometheus_client", reason="needs the reward service (pip install restrain-openrlhf[service])")
    objects = overlay("8xa100-80g")
    texts = [
        rule["expr"]
        for each in of_kind(objects, "PrometheusRule")
        for g in each["spec"]["groups"]
        for rule in g["rules"]
    ]
    for each in of_kind(objects, "ConfigMap"):
        if each["metadata"].get("labels", {}).get("grafana_dashboard"):
            texts += re.findall(r'"expr": *"(.+)"', "\n".join(each["data"].values()))
    asked = {name for text in texts for name in METRIC.findall(text)}
    assert len(asked) > 10
    assert asked - known_metrics.training() - known_metrics.service() == set()
