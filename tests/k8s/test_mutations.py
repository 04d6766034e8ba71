"""Every rule of the checklist fails on a manifest that breaks it: one mutation of a rendered overlay each."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.k8s import rules_jobs, rules_pods, rules_service
from tests.k8s.manifests import Object, of_kind, overlay, pick
from tests.k8s.schemas import problems

Mutation = Callable[[list[Object]], Any]


def worker_group(objects: list[Object]) -> Any:
    return pick(objects, "RayJob", "train")["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]


def worker(objects: list[Object]) -> Any:
    return worker_group(objects)["template"]["spec"]


def worker_labels(objects: list[Object]) -> Any:
    job = pick(objects, "RayJob", "test-time")["spec"]
    return job["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["metadata"]


def head_group(objects: list[Object]) -> Any:
    return pick(objects, "RayJob", "train")["spec"]["rayClusterSpec"]["headGroupSpec"]


def head(objects: list[Object]) -> Any:
    return head_group(objects)["template"]["spec"]


def submitter(objects: list[Object]) -> Any:
    return pick(objects, "RayJob", "train")["spec"]["submitterPodTemplate"]["spec"]


def ray_job(objects: list[Object]) -> Any:
    return pick(objects, "RayJob", "train")["spec"]


def reference(objects: list[Object]) -> Any:
    return pick(objects, "Job", "reference")["spec"]


def reward(objects: list[Object]) -> Any:
    return pick(objects, "Deployment", "reward")["spec"]


def reward_pod(objects: list[Object]) -> Any:
    return reward(objects)["template"]["spec"]


def policy(name: str) -> Mutation:
    return lambda objects: pick(objects, "NetworkPolicy", name)["spec"]


def kind(name: str) -> Mutation:
    return lambda objects: of_kind(objects, name)[0]


def put(where: Mutation, *path: str | int, value: Any) -> Mutation:
    """Set what lies at `path` below `where`."""

    def mutate(objects: list[Object]) -> None:
        node = where(objects)
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = value

    return mutate


def cut(where: Mutation, *path: str | int) -> Mutation:
    """Take away what lies at `path` below `where`."""

    def mutate(objects: list[Object]) -> None:
        node = where(objects)
        for key in path[:-1]:
            node = node[key]
        del node[path[-1]]

    return mutate


def drop_kind(name: str) -> Mutation:
    return lambda objects: [objects.remove(each) for each in of_kind(objects, name)]


def drop(kind_name: str, name: str) -> Mutation:
    return lambda objects: objects.remove(pick(objects, kind_name, name))


def add(value: Object) -> Mutation:
    return lambda objects: objects.append(value)


C0 = ("containers", 0)
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}, "data": {}}
ROLE = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "x"}, "rules": []}
ANYONE = [{"from": [{}], "ports": [{"port": 8265}]}]
WORLD = [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]
KEY = {"name": "WANDB_API_KEY", "value": "0123456789abcdef"}

MUTATIONS: list[tuple[str, Any, Mutation]] = [
    ("a tag instead of a digest", rules_pods.images_by_digest, put(worker, *C0, "image", value="r/train:latest")),
    ("a submitter image without digest", rules_pods.images_by_digest, put(submitter, *C0, "image", value="r/train")),
    ("a head that may be root", rules_pods.pod_security_restricted, cut(head, "securityContext", "runAsNonRoot")),
    ("a submitter left to KubeRay", rules_pods.pod_security_restricted, cut(ray_job, "submitterPodTemplate")),
    ("no seccomp", rules_pods.pod_security_restricted, cut(worker, "securityContext", "seccompProfile")),
    ("escalation", rules_pods.pod_security_restricted, cut(worker, *C0, "securityContext", "allowPrivilegeEscalation")),
    (
        "a capability",
        rules_pods.pod_security_restricted,
        put(worker, *C0, "securityContext", "capabilities", "add", value=["IPC_LOCK"]),
    ),
    (
        "capabilities kept",
        rules_pods.pod_security_restricted,
        put(reward_pod, *C0, "securityContext", "capabilities", value={}),
    ),
    (
        "a writable root",
        rules_pods.pod_security_restricted,
        put(head, *C0, "securityContext", "readOnlyRootFilesystem", value=False),
    ),
    (
        "a host path",
        rules_pods.pod_security_restricted,
        put(worker, "volumes", 0, value={"name": "x", "hostPath": {"path": "/"}}),
    ),
    ("the host's network", rules_pods.pod_security_restricted, put(worker, "hostNetwork", value=True)),
    (
        "a laxer namespace",
        rules_pods.pod_security_restricted,
        put(kind("Namespace"), "metadata", "labels", "pod-security.kubernetes.io/enforce", value="baseline"),
    ),
    ("the default account", rules_pods.own_service_accounts, cut(worker, "serviceAccountName")),
    ("a mounted token", rules_pods.own_service_accounts, put(head, "automountServiceAccountToken", value=True)),
    (
        "an account that mounts",
        rules_pods.own_service_accounts,
        cut(kind("ServiceAccount"), "automountServiceAccountToken"),
    ),
    ("a role", rules_pods.own_service_accounts, add(ROLE)),
    ("a secret in git", rules_pods.no_secret_in_sight, add(SECRET)),
    ("a key written out", rules_pods.no_secret_in_sight, put(worker, *C0, "env", value=[KEY])),
    (
        "a key in the entrypoint",
        rules_pods.no_secret_in_sight,
        put(ray_job, "entrypoint", value="restrain train x --set openrlhf.logger.wandb.key=$WANDB_API_KEY"),
    ),
    (
        "a key in the runtime environment",
        rules_pods.no_secret_in_sight,
        put(ray_job, "runtimeEnvYAML", value="env_vars: {X: hf_abcdefghijklmnopqrstuvwxyz}"),
    ),
    (
        "a secret as argument",
        rules_pods.no_secret_in_sight,
        put(reward_pod, *C0, "args", value=["--store=$(RESTRAIN_STORE)"]),
    ),
    (
        "a password in an address",
        rules_pods.no_secret_in_sight,
        put(reward_pod, *C0, "args", value=["--store=redis://u:pw@redis"]),
    ),
    ("a mount without volume", rules_pods.mounts_resolve, cut(worker, "volumes", 0)),
    ("a claim that is not there", rules_pods.mounts_resolve, drop("PersistentVolumeClaim", "work")),
    (
        "a stale ConfigMap name",
        rules_pods.mounts_resolve,
        put(head, "volumes", 0, value={"name": "experiment", "configMap": {"name": "train-experiment"}}),
    ),
    ("an environment that is not there", rules_pods.mounts_resolve, drop("ConfigMap", "runtime-environment")),
    (
        "a request above its limit",
        rules_pods.resources_are_whole,
        put(worker, *C0, "resources", "requests", "memory", value="9Ti"),
    ),
    ("no memory limit", rules_pods.resources_are_whole, cut(submitter, *C0, "resources", "limits", "memory")),
    (
        "GPUs limited, not asked for",
        rules_pods.resources_are_whole,
        cut(worker, *C0, "resources", "requests", "nvidia.com/gpu"),
    ),
    (
        "shared memory as large as the memory",
        rules_pods.writable_places,
        put(worker, "volumes", 5, "emptyDir", "sizeLimit", value="9Ti"),
    ),
    ("shared memory without size", rules_pods.writable_places, cut(worker, "volumes", 5, "emptyDir", "sizeLimit")),
    ("no /tmp", rules_pods.writable_places, put(reward_pod, *C0, "volumeMounts", value=[])),
    (
        "no cache",
        rules_pods.writable_places,
        put(worker, *C0, "volumeMounts", value=[{"name": "tmp", "mountPath": "/tmp"}]),
    ),
    (
        "a long name",
        rules_jobs.ray_job_rules,
        put(lambda o: pick(o, "RayJob", "train"), "metadata", "name", value="t" * 48),
    ),
    (
        "a name with a dot",
        rules_jobs.ray_job_rules,
        put(lambda o: pick(o, "RayJob", "train"), "metadata", "name", value="qwen3-0.6b"),
    ),
    ("another Ray", rules_jobs.ray_job_rules, put(ray_job, "rayClusterSpec", "rayVersion", value="2.54.0")),
    (
        "a Ray version that is a number",
        rules_jobs.ray_job_rules,
        put(ray_job, "rayClusterSpec", "rayVersion", value=2.55),
    ),
    ("a cluster that stays", rules_jobs.ray_job_rules, put(ray_job, "shutdownAfterJobFinishes", value=False)),
    ("a borrowed cluster", rules_jobs.ray_job_rules, put(ray_job, "clusterSelector", value={"ray.io/cluster": "x"})),
    ("autoscaling", rules_jobs.ray_job_rules, put(ray_job, "rayClusterSpec", "enableInTreeAutoscaling", value=True)),
    ("a sidecar submitter", rules_jobs.ray_job_rules, put(ray_job, "submissionMode", value="SidecarMode")),
    ("no deadline", rules_jobs.ray_job_rules, cut(ray_job, "activeDeadlineSeconds")),
    ("no deadline for the start", rules_jobs.ray_job_rules, cut(ray_job, "preRunningDeadlineSeconds")),
    ("no retry", rules_jobs.ray_job_rules, cut(ray_job, "backoffLimit")),
    ("no token", rules_jobs.ray_job_rules, put(ray_job, "rayClusterSpec", "authOptions", value={"mode": "disabled"})),
    ("agents that may be late", rules_jobs.ray_job_rules, put(worker_group, "rayStartParams", value={})),
    ("workers that come and go", rules_jobs.ray_job_rules, put(worker_group, "maxReplicas", value=9)),
    (
        "a GPU on the head",
        rules_jobs.head_without_gpu,
        put(head, *C0, "resources", "limits", "nvidia.com/gpu", value="1"),
    ),
    ("work on the head", rules_jobs.head_without_gpu, put(head_group, "rayStartParams", value={})),
    ("GPUs in the head's sight", rules_jobs.head_without_gpu, put(head, *C0, "env", value=[])),
    ("a worker without GPU", rules_jobs.head_without_gpu, cut(worker, *C0, "resources", "limits", "nvidia.com/gpu")),
    ("preemption as failure", rules_jobs.indexed_jobs, cut(reference, "podFailurePolicy")),
    ("fewer shards than indexes", rules_jobs.indexed_jobs, put(reference, "completions", value=9)),
    ("shards that share their retries", rules_jobs.indexed_jobs, cut(reference, "backoffLimitPerIndex")),
    (
        "a reference that training does not read",
        rules_jobs.steps_agree,
        put(reference, "template", "spec", *C0, "args", 2, value="--out=/mnt/work/data/other.jsonl"),
    ),
    (
        "test-time RL of another model than its configuration's",
        rules_jobs.steps_agree,
        put(
            lambda objects: pick(objects, "RayJob", "test-time")["spec"],
            "entrypoint",
            value="test-time adapt --config /etc/restrain/experiment.yaml --model other --prompts p --out o",
        ),
    ),
    ("a job that starts around the queue", rules_jobs.queued_by_component, cut(ray_job, "suspend")),
    (
        "a queue label lost",
        rules_jobs.queued_by_component,
        put(lambda o: pick(o, "Job", "evaluation"), "metadata", "labels", value={}),
    ),
    ("no workload priority", rules_jobs.queued_by_component, drop_kind("WorkloadPriorityClass")),
    (
        "a queue into nothing",
        rules_jobs.queued_by_component,
        put(kind("LocalQueue"), "spec", "clusterQueue", value="x"),
    ),
    (
        "a resource no queue covers",
        rules_jobs.queued_by_component,
        put(worker, *C0, "resources", "requests", "ephemeral-storage", value="1Gi"),
    ),
    ("a quota elsewhere", rules_jobs.in_the_namespace, cut(kind("ResourceQuota"), "metadata", "namespace")),
    (
        "a cluster's object in a namespace",
        rules_jobs.in_the_namespace,
        put(kind("ClusterQueue"), "metadata", "namespace", value="restrain"),
    ),
    ("no priority class", rules_jobs.priorities_exist, drop("PriorityClass", "restrain-training")),
    ("a pod without priority", rules_jobs.priorities_exist, cut(submitter, "priorityClassName")),
    ("more nodes than the quota", rules_jobs.quota_holds_the_largest_job, put(worker_group, "replicas", value=5)),
    ("no default deny", rules_service.default_deny, drop("NetworkPolicy", "default-deny")),
    ("deny one way", rules_service.default_deny, put(policy("default-deny"), "policyTypes", value=["Ingress"])),
    ("anyone may submit", rules_service.default_deny, put(policy("train-head"), "ingress", value=ANYONE)),
    ("training may call out", rules_service.default_deny, put(policy("train-cluster"), "egress", value=WORLD)),
    (
        "metadata service in reach",
        rules_service.default_deny,
        cut(policy("prefetch"), "egress", 0, "to", 0, "ipBlock", "except"),
    ),
    (
        "a policy of nobody",
        rules_service.policies_select_pods,
        put(policy("redis"), "podSelector", "matchLabels", value={"x": "y"}),
    ),
    (
        "a port nobody has",
        rules_service.policies_select_pods,
        put(policy("reward"), "ingress", 0, "ports", value=[{"port": 9}]),
    ),
    (
        "workers cut off from the head",
        rules_service.training_is_reached_by_its_own,
        put(policy("train-cluster"), "egress", value=[]),
    ),
    (
        "test-time pods in the training cluster",
        rules_service.training_is_reached_by_its_own,
        put(worker_labels, "labels", "app.kubernetes.io/component", value="train"),
    ),
    (
        "a service of other pods",
        rules_service.selectors_match,
        put(lambda o: pick(o, "Service", "reward"), "spec", "selector", value={"x": "y"}),
    ),
    (
        "a service to another port",
        rules_service.selectors_match,
        put(lambda o: pick(o, "Service", "reward"), "spec", "ports", 0, "targetPort", value="web"),
    ),
    (
        "a deployment of other pods",
        rules_service.selectors_match,
        put(reward, "selector", "matchLabels", value={"x": "y"}),
    ),
    (
        "a budget of nobody",
        rules_service.selectors_match,
        put(kind("PodDisruptionBudget"), "spec", "selector", "matchLabels", value={"x": "y"}),
    ),
    (
        "one probe for all",
        rules_service.reward_service,
        put(reward_pod, *C0, "livenessProbe", "httpGet", "path", value="/readyz"),
    ),
    (
        "a probe of another port",
        rules_service.reward_service,
        put(reward_pod, *C0, "livenessProbe", "httpGet", "port", value="web"),
    ),
    (
        "a probe behind the requests",
        rules_service.reward_service,
        put(reward_pod, *C0, "livenessProbe", "httpGet", "port", value="http"),
    ),
    (
        "no port for probes",
        rules_service.reward_service,
        cut(reward_pod, *C0, "args", 3),
    ),
    ("fixed replicas", rules_service.reward_service, put(reward, "replicas", value=2)),
    (
        "a gap on updates",
        rules_service.reward_service,
        put(reward, "strategy", "rollingUpdate", "maxUnavailable", value=1),
    ),
    ("one replica", rules_service.reward_service, put(kind("HorizontalPodAutoscaler"), "spec", "minReplicas", value=1)),
    (
        "crossed bounds",
        rules_service.reward_service,
        put(kind("HorizontalPodAutoscaler"), "spec", "maxReplicas", value=1),
    ),
    ("killed while draining", rules_service.reward_service, put(reward_pod, "terminationGracePeriodSeconds", value=40)),
    ("no preStop", rules_service.reward_service, cut(reward_pod, *C0, "lifecycle")),
    ("not spread", rules_service.reward_service, cut(reward_pod, "topologySpreadConstraints")),
    ("no disruption budget", rules_service.reward_service, drop_kind("PodDisruptionBudget")),
    (
        "a monitor of another port",
        rules_service.monitors_match,
        put(kind("PodMonitor"), "spec", "podMetricsEndpoints", 0, "port", value="web"),
    ),
    (
        "a monitor of no service",
        rules_service.monitors_match,
        put(kind("ServiceMonitor"), "spec", "selector", value={"matchLabels": {"x": "y"}}),
    ),
    (
        "a node selector in the base",
        rules_jobs.scheduling_in_overlays_only,
        put(head, "nodeSelector", value={"x": "y"}),
    ),
    (
        "an entrypoint of another version",
        rules_jobs.entrypoints_parse,
        put(ray_job, "entrypoint", value="restrain train a.yaml --colour blue"),
    ),
    (
        "a command that is not there",
        rules_jobs.entrypoints_parse,
        put(reference, "template", "spec", *C0, "command", value=["restrain", "refer"]),
    ),
]


@pytest.mark.parametrize(
    ("name", "rule", "mutate"), MUTATIONS, ids=[name.replace(" ", "-") for name, _, _ in MUTATIONS]
)
def test_it_is_found(name, rule, mutate):
    objects = overlay("multi-node-h100")
    before = list(rule(objects))
    mutate(objects)
    assert set(rule(objects)) - set(before), name


@pytest.mark.host
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("save_steps: 10", "save_steps: -1", "starts from nothing"),
        ("actor.adam.lr: 1e-6", "actor.adam.lrr: 1e-6", "is not a flag of OpenRLHF"),
        ("vllm.num_engines: 16", "vllm.num_engines: 16\n  train.async_enable: true", "the layout needs 32 GPUs"),
        ("run_dir: /mnt/work/", "run_dir: /cache/", "is not on a shared volume"),
    ],
)
def test_an_experiment_that_does_not_fit_is_found(old, new, message, tmp_path):
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")
    objects = overlay("multi-node-h100")
    for each in of_kind(objects, "ConfigMap"):
        if each["metadata"]["name"].startswith("train-experiment"):
            each["data"]["experiment.yaml"] = each["data"]["experiment.yaml"].replace(old, new)
    assert any(message in problem for problem in rules_jobs.experiments_fit(objects, tmp_path))


def test_a_volume_for_one_node_is_found(tmp_path):
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")
    objects = overlay("multi-node-h100")
    pick(objects, "PersistentVolumeClaim", "work")["spec"]["accessModes"] = ["ReadWriteOnce"]
    assert any("is not on a shared volume" in problem for problem in rules_jobs.experiments_fit(objects, tmp_path))


def test_a_metric_nobody_exports_is_found():
    objects = overlay("multi-node-h100")
    found = rules_service.metrics_exist(objects, known={"ray_restrain_step"})
    assert any("ray_restrain_top_answer_share" in problem for problem in found)


@pytest.mark.parametrize(
    ("where", "path", "value"),
    [
        (lambda o: pick(o, "Job", "reference"), ("spec", "completion"), 8),
        (lambda o: pick(o, "RayJob", "train"), ("spec", "rayClusterSpec", "workerGroup"), []),
        (lambda o: pick(o, "RayJob", "train"), ("spec", "entrypoint"), 3),
        (lambda o: pick(o, "RayJob", "train"), ("spec", "rayClusterSpec", "authOptions", "mode"), "tokens"),
        (lambda o: pick(o, "RayJob", "train"), ("spec", "managedBy"), "somebody"),
        (lambda o: pick(o, "RayJob", "train"), ("spec", "deletionStrategy"), {"onSuccess": {"policy": "DeleteSelf"}}),
        (kind("PodMonitor"), ("spec", "podMetricsEndpoints", 0, "interval"), "soon"),
        (kind("ClusterQueue"), ("spec", "queueingStrategy"), "Fast"),
        (kind("PrometheusRule"), ("spec", "groups", 0, "rules", 0, "for"), "a while"),
        (kind("Namespace"), ("apiVersion",), "v2"),
        (kind("Namespace"), ("kind",), "Namespac"),
    ],
)
def test_the_schemas_are_strict(where, path, value, shared):
    objects = overlay("multi-node-h100")
    each = where(objects)
    crds = shared / "k8s" / "crds"
    assert problems(each, crds) == []
    put(lambda _objects: each, *path, value=value)(objects)
    assert problems(each, crds) != []
