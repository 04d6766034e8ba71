"""Every overlay renders, is what an API server accepts, and keeps every rule of the production checklist."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from restrain_openrlhf.commands.k8s.cluster import Cluster, load_overlay
from restrain_openrlhf.commands.k8s.experiment import load_experiment
from restrain_openrlhf.config import host_flags
from restrain_openrlhf.config.documents import parse_yaml
from restrain_openrlhf.config.memory import GIB, estimate, shape_of, why_it_cannot_fit
from restrain_openrlhf.config.nodes import NodeShape
from restrain_openrlhf.config.shipped import KUBERNETES
from tests.commands.k8s import known_metrics, rules_jobs, rules_names, rules_pods, rules_service
from tests.commands.k8s.experiments import replace
from tests.commands.k8s.manifests import OVERLAYS, Object, component, of_kind, overlay, pick, pods, quantity, runs
from tests.commands.k8s.schemas import problems
from tests.conftest import ROOT

EVERYWHERE = [
    rules_pods.images_by_digest,
    rules_pods.pod_security_restricted,
    rules_pods.own_service_accounts,
    rules_pods.no_secret_in_sight,
    rules_pods.mounts_resolve,
    rules_jobs.steps_agree,
    rules_names.names_resolve,
    rules_names.paths_are_mounted,
    rules_service.default_deny,
    rules_service.training_is_reached_by_its_own,
]
HEAD, POD = "/spec/rayClusterSpec/headGroupSpec/template/spec", "/spec/template/spec"
KEY = [{"name": "WANDB_API_KEY", "value": "0123456789abcdef"}]
# Rule, object, place in it, and what stands there instead, for each rule.
BROKEN = [
    (rules_pods.images_by_digest, "RayJob/train", f"{HEAD}/containers/0/image", "r/train:latest"),
    (rules_pods.pod_security_restricted, "RayJob/train", f"{HEAD}/securityContext/runAsNonRoot", False),
    (rules_pods.own_service_accounts, "RayJob/train", f"{HEAD}/automountServiceAccountToken", True),
    (rules_pods.no_secret_in_sight, "RayJob/train", f"{HEAD}/containers/0/env", KEY),
    (rules_pods.mounts_resolve, "PersistentVolumeClaim/work", "/metadata/name", "other"),
    (rules_jobs.steps_agree, "Job/data", f"{POD}/containers/0/args/3", "--out=/mnt/work/data/other.jsonl"),
    (rules_names.names_resolve, "Job/evaluation", f"{POD}/containers/0/args/1", "--benchmarks=minerva"),
    (rules_names.paths_are_mounted, "RayJob/train", "/spec/entrypoint", "restrain train /etc/restrain/other.yaml"),
    (rules_service.default_deny, "NetworkPolicy/data", "/spec/egress/0/to/0/ipBlock/except", ["169.254.0.0/16"]),
    (rules_service.training_is_reached_by_its_own, "NetworkPolicy/train-cluster", "/spec/egress", []),
]


def test_there_are_overlays_for_one_gpu_one_node_and_many():
    assert {"single-node", "single-node-8gpu", "8xa100-80g", "multi-node-h100", "multi-node-h100-rdma"} <= set(OVERLAYS)


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_api_server_would_accept_every_object(name, shared):
    objects = overlay(name)
    assert [
        (each["kind"], each["metadata"]["name"], p) for each in objects for p in problems(each, shared / "k8s" / "crds")
    ] == []
    names = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("rule", EVERYWHERE, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("name", OVERLAYS)
def test_every_overlay_keeps(name, rule):
    assert list(rule(overlay(name))) == []


@pytest.mark.parametrize(("rule", "name", "pointer", "value"), BROKEN, ids=[rule.__name__ for rule, *_ in BROKEN])
def test_a_rule_finds_what_breaks_it(rule, name, pointer, value):
    assert {rule for rule, *_ in BROKEN} == set(EVERYWHERE)
    objects = copy.deepcopy(overlay("multi-node-h100"))
    replace(pick(objects, *name.split("/")), pointer, value)
    assert list(rule(objects))


# The others have training alone.
@pytest.mark.parametrize("name", ["8xa100-80g", "multi-node-h100"])
def test_url_only_is_one_process(name, shared):
    """Two processes would split the groups that they gather from single rollouts."""
    objects, without = component("url-only", name), overlay(name)
    assert [problem for rule in EVERYWHERE for problem in rule(objects)] == []
    assert [problem for each in objects for problem in problems(each, shared / "k8s" / "crds")] == []
    assert {each["kind"] for each in without} - {each["kind"] for each in objects} == {"HorizontalPodAutoscaler"}
    deployment = pick(objects, "Deployment", "reward")["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})


@pytest.mark.host
@pytest.mark.parametrize("name", OVERLAYS)
def test_experiments_are_what_openrlhf_accepts_and_fit_their_nodes(name, tmp_path):
    pytest.importorskip("openrlhf", reason="needs OpenRLHF's own parser (make install)")
    assert list(rules_jobs.experiments_fit(overlay(name), tmp_path)) == []


PRESETS = {
    "train": "configs/dapo14k/qwen3-4b-base/restrain.yaml",
    "test-time": "configs/test_time/llama3.1-8b-instruct/aime24/restrain.yaml",
}
# What an overlay may set to fit its nodes; a smaller model comes with names and a template of its own.
SIZES = {"actor.num_nodes", "ref.num_nodes", "actor.num_gpus_per_node", "ref.num_gpus_per_node", "vllm.num_engines"}
SMALL = {
    "actor.model_name_or_path",
    "data.apply_chat_template",
    "data.input_template",
    "data.max_len",
    "ds.zero_stage",
    "rollout.batch_size",
    "rollout.max_new_tokens",
    "rollout.max_tokens_per_gpu",
    "rollout.micro_batch_size",
    "train.batch_size",
    "train.max_tokens_per_gpu",
    "train.micro_batch_size",
    "vllm.gpu_memory_utilization",
}


@pytest.mark.host
@pytest.mark.parametrize("job", PRESETS)
@pytest.mark.parametrize(
    ("folder", "differs"),
    [
        ("overlays/8xa100-80g/{job}.yaml", set()),
        ("overlays/multi-node-h100/{job}.yaml", SIZES),
        ("overlays/single-node-8gpu/{job}.yaml", set()),
        ("base/single-node/{job}/experiment.yaml", SIZES | SMALL),
    ],
)
def test_what_an_overlay_runs_is_the_preset_that_it_names(folder, differs, job):
    pytest.importorskip("openrlhf", reason="needs OpenRLHF's own parser (make install)")
    text = (ROOT / "k8s" / folder.format(job=job)).read_text()
    assert f"made from {PRESETS[job]}.\n" in text
    found, shape = parse_yaml(text, folder), NodeShape(gpus_per_node=8, max_nodes=4, cpus_per_node=80)
    preset = load_experiment(ROOT / PRESETS[job], {}, shape).document
    flags = {*found["openrlhf"], *preset["openrlhf"]} - differs
    assert {key: found["openrlhf"].get(key) for key in flags} == {key: preset["openrlhf"].get(key) for key in flags}
    # A rendered training reads a pass named by what it draws; an overlay's own has the name that its Jobs are given.
    own = {"openrlhf", *(["reference"] if job == "train" else [])}
    own |= set() if differs.isdisjoint(SMALL) or job == "test-time" else {"run_dir"}
    assert {key: found[key] for key in found if key not in own} == {
        key: preset[key] for key in preset if key not in own
    }


# GiB of the smallest GPU that an overlay is for, where that is less than its `gpu_memory`.
SMALLEST_GPU = {"single-node": 24}


@pytest.mark.host
@pytest.mark.parametrize("name", OVERLAYS)
def test_what_an_overlay_runs_fits_its_smallest_gpu_with_a_tenth_left(name, tmp_path):
    gpu = SMALLEST_GPU.get(name, load_overlay(Cluster(overlay=name), KUBERNETES).nodes.gpu_memory) * GIB
    for each in runs(overlay(name)):
        flags = flags_of(overlay(name), each, tmp_path)
        assert why_it_cannot_fit(flags, gpu) is None
        _, peak = estimate(flags, shape_of(flags["actor.model_name_or_path"]), gpu).peak
        assert peak <= 0.9 * gpu, each["metadata"]["name"]
        assert "what is certain alone" in str(why_it_cannot_fit(flags, 3 * GIB))


def flags_of(objects: list[Object], run: Object, folder: Path) -> dict[str, Any]:
    return host_flags.flags_of(rules_jobs.experiment_of(objects, run, folder))


@pytest.mark.parametrize("name", OVERLAYS)
def test_node_shapes_are_what_the_workers_ask_for(name):
    shape = load_overlay(Cluster(overlay=name), KUBERNETES).nodes
    run = next(each for each in runs(overlay(name)) if each["metadata"]["name"] == "train")
    worker = next(pod for pod in pods([run]) if pod.gpus)
    asked = worker.spec["containers"][0]["resources"]["requests"]
    assert (asked["nvidia.com/gpu"], asked["cpu"]) == (str(shape.gpus_per_node), str(shape.cpus_per_node))
    assert rules_jobs.worker_gpus(run) <= shape.max_nodes * shape.gpus_per_node


# What an overlay is for: vCPUs and GiB of its nodes as their clouds list them (p4de, a2-ultragpu-8g; p5, a3-highgpu-8g;
# g2-standard-12 and a2-ultragpu-1g).
NODES = {
    "8xa100-80g": [(96, 1152), (96, 1266)],
    "multi-node-h100": [(192, 2048), (208, 1743)],
    "multi-node-h100-rdma": [(192, 2048), (208, 1743)],
    "single-node": [(12, 44), (12, 158)],
    "single-node-8gpu": [(96, 1152), (192, 2048), (208, 1743)],
}


@pytest.mark.parametrize("name", OVERLAYS)
def test_pods_fit_their_nodes_beside_the_nodes_own(name):
    """A tenth of the memory and 4 of 96 CPUs, and two at least, are the kubelet's and the daemonsets'."""
    for run in runs(overlay(name)):
        asked = [each["resources"]["requests"] for pod in pods([run]) for each in pod.containers]
        cpus, memory = (sum(quantity(each[kind]) for each in asked) for kind in ("cpu", "memory"))
        for vcpus, gib in NODES[name]:
            assert cpus <= vcpus - max(2, vcpus / 24), name
            assert memory <= 0.9 * gib * 2**30, name
    for pod in pods(overlay(name)):
        assert all(quantity(each["resources"]["requests"]["cpu"]) <= 10 for each in pod.containers if pod.gpus == 1)


def test_the_h100_overlays_share_their_nodes():
    queues = [of_kind(overlay(name), "ClusterQueue")[0]["spec"] for name in ("multi-node-h100", "multi-node-h100-rdma")]
    assert {(each["cohortName"], each["preemption"]["reclaimWithinCohort"]) for each in queues} == {
        ("restrain-h100", "Any")
    }
    shape, run = (
        load_overlay(Cluster(overlay="multi-node-h100"), KUBERNETES).nodes,
        pick(overlay("multi-node-h100"), "RayJob", "train"),
    )
    quotas = [
        {each["name"]: quantity(each["nominalQuota"]) for each in spec["resourceGroups"][0]["flavors"][0]["resources"]}
        for spec in queues
    ]
    together = {kind: sum(each[kind] for each in quotas) for kind in ("cpu", "memory", "nvidia.com/gpu")}
    assert together["nvidia.com/gpu"] == shape.max_nodes * shape.gpus_per_node
    for kind, quota in together.items():
        once = sum(quantity(p.spec["containers"][0]["resources"]["requests"].get(kind, 0)) for p in pods([run]))
        worker = next(p for p in pods([run]) if p.gpus).spec["containers"][0]["resources"]["requests"][kind]
        assert once + (shape.max_nodes - 1) * quantity(worker) <= quota, kind


def test_alerts_and_dashboards_ask_for_metrics_that_exist():
    pytest.importorskip("ray", reason="needs Ray, for the hook's gauge names (make install)")
    pytest.importorskip("prometheus_client", reason="needs the reward service (pip install restrain-openrlhf[service])")
    assert list(rules_service.metrics_exist(overlay("8xa100-80g"), known_metrics.all_of_them())) == []


def test_importing_the_renderer_starts_no_framework():
    render = "restrain_openrlhf.commands.k8s.command"
    script = f"import sys, {render}; print([m for m in ('torch', 'ray', 'vllm') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=Path(ROOT))
    assert done.stdout.strip() == "[]"
