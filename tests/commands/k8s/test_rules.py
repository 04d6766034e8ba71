"""Each rule of the checklist fails on a manifest that breaks it: one broken place for each, so that none is blind."""

import copy
import itertools

import pytest

from tests.commands.k8s import rules_experiments, rules_jobs, rules_names, rules_pods, rules_service
from tests.commands.k8s.experiments import replace
from tests.commands.k8s.manifests import built, component, of_kind, overlay, pick
from tests.commands.k8s.schemas import problems
from tests.commands.k8s.test_overlays import EVERYWHERE
from tests.conftest import ROOT

HEAD = "/spec/rayClusterSpec/headGroupSpec/template/spec"
WORKER = "/spec/rayClusterSpec/workerGroupSpecs/0/template/spec"
POD = "/spec/template/spec"
ANYONE = [{"from": [{}], "ports": [{"port": 8265}]}]
DRAINS_LONG = "service: {timing: {drain: 80.0}}"
GATHERS = "service: {group_size: 16, end_of_text: [x]}"
KEY = [{"name": "WANDB_API_KEY", "value": "0123456789abcdef"}]

# rule, object, place in it, what stands there instead
BROKEN = [
    (rules_pods.images_by_digest, "RayJob/train", f"{WORKER}/containers/0/image", "r/train:latest"),
    (rules_pods.pod_security_restricted, "RayJob/train", f"{HEAD}/securityContext/runAsNonRoot", False),
    (rules_pods.own_service_accounts, "RayJob/train", f"{HEAD}/automountServiceAccountToken", True),
    (rules_pods.no_secret_in_sight, "RayJob/train", f"{WORKER}/containers/0/env", KEY),
    (rules_pods.mounts_resolve, "PersistentVolumeClaim/work", "/metadata/name", "other"),
    (rules_pods.resources_are_whole, "Job/regrade", f"{POD}/containers/0/resources/limits", {"cpu": "2"}),
    (rules_pods.writable_places, "RayJob/train", f"{WORKER}/volumes/5/emptyDir/sizeLimit", "9Ti"),
    (rules_pods.writable_places, "RayJob/train", f"{HEAD}/volumes/5/emptyDir/sizeLimit", "4Gi"),
    (rules_pods.kept_by_the_autoscaler, "Job/regrade", "/spec/template/metadata/annotations", {}),
    (rules_pods.registries_are_told, "Deployment/reward", "/metadata/annotations", {}),
    (rules_pods.gpus_are_seen_where_asked_for, "Job/regrade", f"{POD}/containers/0/env", []),
    (rules_jobs.ray_job_rules, "RayJob/train", "/spec/rayClusterSpec/rayVersion", "2.54.0"),
    (rules_jobs.ray_job_rules, "RayJob/train", "/spec/preRunningDeadlineSeconds", 3600),
    (rules_jobs.clocks_start_on_the_node, "Job/reference", "/spec/activeDeadlineSeconds", 604800),
    (rules_jobs.clocks_start_on_the_node, "Job/reference", f"{POD}/activeDeadlineSeconds", None),
    (rules_jobs.head_without_gpu, "RayJob/train", f"{HEAD}/containers/0/env", []),
    (rules_jobs.indexed_jobs, "Job/reference", "/spec/completions", 9),
    (rules_jobs.steps_agree, "Job/reference", f"{POD}/containers/0/args/2", "--out=/mnt/work/data/other.jsonl"),
    (rules_jobs.queued_by_component, "RayJob/train", "/metadata/labels", {"app.kubernetes.io/component": "train"}),
    (rules_jobs.in_the_namespace, "ResourceQuota/restrain", "/metadata/namespace", "default"),
    (rules_jobs.priorities_exist, "Job/regrade", f"{POD}/priorityClassName", "other"),
    (rules_jobs.quota_holds_the_largest_job, "RayJob/train", "/spec/rayClusterSpec/workerGroupSpecs/0/replicas", 5),
    (rules_names.names_resolve, "Job/evaluation", f"{POD}/containers/0/args/1", "--benchmarks=minerva"),
    (rules_names.paths_are_mounted, "RayJob/train", "/spec/entrypoint", "restrain train /etc/restrain/other.yaml"),
    (rules_experiments.experiments_are_apart, "NetworkPolicy/prefetch", "/spec/podSelector", {"matchLabels": {}}),
    (rules_experiments.nothing_needs_a_force, "RayJob/train", "/spec/suspend", True),
    (
        rules_experiments.policies_name_what_is_there,
        "NetworkPolicy/train-submitter",
        "/spec/egress/0/ports",
        [{"port": 9}],
    ),
    (
        rules_experiments.secrets_are_made_by_the_page,
        "Deployment/reward",
        f"{POD}/volumes/1/secret/secretName",
        "other",
    ),
    (rules_service.default_deny, "NetworkPolicy/train-head", "/spec/ingress", ANYONE),
    (rules_service.default_deny, "NetworkPolicy/data", "/spec/egress/0/to/0/ipBlock/except", ["169.254.0.0/16"]),
    (rules_service.policies_select_pods, "NetworkPolicy/reward", "/spec/ingress/0/ports", [{"port": 9}]),
    (rules_service.training_is_reached_by_its_own, "NetworkPolicy/train-cluster", "/spec/egress", []),
    (rules_service.clients_reach_the_service, "NetworkPolicy/reward-clients", "/spec/egress/0/ports/0/port", 9),
    (rules_service.gathered_in_one_process, "ConfigMap/reward-config", "/data/reward.yaml", GATHERS),
    (rules_service.selectors_match, "Service/reward", "/spec/selector", {"x": "y"}),
    (rules_service.monitors_match, "PodMonitor/ray", "/spec/podMetricsEndpoints/0/port", "web"),
    (rules_service.reward_service, "Deployment/reward", f"{POD}/terminationGracePeriodSeconds", 40),
    (rules_service.reward_service, "ConfigMap/reward-config", "/data/reward.yaml", DRAINS_LONG),
]


def broken(name, pointer, value):
    """A copy of an overlay with another value in one place."""
    objects = copy.deepcopy(overlay("multi-node-h100"))
    replace(pick(objects, *name.split("/")), pointer, value)
    return objects


@pytest.mark.parametrize(("rule", "name", "pointer", "value"), BROKEN, ids=[rule.__name__ for rule, *_ in BROKEN])
def test_a_rule_finds_what_breaks_it(rule, name, pointer, value):
    assert list(rule(broken(name, pointer, value)))


@pytest.mark.parametrize(
    ("name", "pointer", "value", "message"),
    [
        ("Deployment/reward", "/spec/replicas", 2, "has not one replica"),
        ("Deployment/reward", "/spec/strategy", {"type": "RollingUpdate"}, "starts its successor before it ends"),
        ("PodDisruptionBudget/reward", "/spec/maxUnavailable", 0, "lets no node be drained"),
    ],
)
def test_two_processes_that_would_split_groups_are_found(name, pointer, value, message):
    objects = copy.deepcopy(component("url-only", "multi-node-h100"))
    replace(pick(objects, *name.split("/")), pointer, value)
    (problem,) = rules_service.gathered_in_one_process(objects)
    assert message in problem


def test_a_way_to_another_namespaces_service_is_found():
    ray_pods = itertools.product(("test-time", "train"), ("head", "worker"))
    elsewhere = {"matchLabels": {"kubernetes.io/metadata.name": "default"}}
    objects = broken("NetworkPolicy/reward-clients", "/spec/egress/0/to/0/namespaceSelector", elsewhere)
    found = list(rules_service.clients_reach_the_service(objects))
    assert found == [f"RayJob/{job}/{role}: does not reach the reward service" for job, role in ray_pods]


def test_an_autoscaler_over_one_process_is_found():
    scaler = pick(overlay("multi-node-h100"), "HorizontalPodAutoscaler", "reward")
    (problem,) = rules_service.gathered_in_one_process([*component("url-only", "multi-node-h100"), scaler])
    assert "is scaled" in problem


def test_no_rule_is_left_out():
    assert {rule for rule, *_ in BROKEN} == {*EVERYWHERE, rules_service.reward_service}


def test_a_command_that_is_not_there_is_found():
    objects = broken("Job/reference", f"{POD}/containers/0/command", ["restrain", "refer"])
    assert ["no command 'refer'" in problem for problem in rules_names.names_resolve(objects)] == [True]
    objects = broken("RayJob/train", "/spec/entrypoint", "restrain train a.yaml --colour blue")
    assert ["--colour" in problem for problem in rules_names.names_resolve(objects)] == [True]


@pytest.mark.host
def test_an_experiment_that_openrlhf_refuses_is_found(tmp_path):
    pytest.importorskip("openrlhf", reason="needs OpenRLHF's own parser (make install)")
    objects = copy.deepcopy(overlay("multi-node-h100"))
    for each in of_kind(objects, "ConfigMap"):
        if each["metadata"]["name"].startswith("train-experiment"):
            text = each["data"]["experiment.yaml"]
            each["data"]["experiment.yaml"] = text.replace("actor.adam.lr: 1e-6", "actor.adam.lrr: 1e-6")
    (problem,) = rules_jobs.experiments_fit(objects, tmp_path)
    assert "'actor.adam.lrr' is not a flag of OpenRLHF" in problem


def test_a_metric_that_nothing_exports_is_found():
    found = rules_service.metrics_exist(overlay("multi-node-h100"), known={"ray_restrain_step"})
    assert any("ray_restrain_top_answer_share" in problem for problem in found)


def test_the_base_names_no_nodes_and_an_overlay_does():
    rule, named = rules_jobs.scheduling_in_overlays_only, overlay("8xa100-80g")
    assert list(rule(built(ROOT / "k8s" / "base"))) == []
    assert list(rule(named))


@pytest.mark.parametrize(
    ("name", "pointer", "value"),
    [
        ("Job/reference", "/spec/completion", 8),
        ("RayJob/train", "/spec/rayClusterSpec/workerGroup", []),
        ("RayJob/train", "/spec/deletionStrategy", {"onSuccess": {"policy": "DeleteSelf"}}),
        ("PrometheusRule/restrain-training", "/spec/groups/0/rules/0/for", "a while"),
        ("Namespace/restrain", "/kind", "Namespac"),
    ],
    ids=["a built-in kind", "a custom kind", "a CEL rule", "our own schema", "an unknown kind"],
)
def test_the_schemas_are_strict(name, pointer, value, shared):
    crds = shared / "k8s" / "crds"
    each = copy.deepcopy(pick(overlay("multi-node-h100"), *name.split("/")))
    assert problems(each, crds) == []
    replace(each, pointer, value)
    assert problems(each, crds) != []
