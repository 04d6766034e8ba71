"""What the cluster file and the cluster's options change in the manifests, and what no cluster has."""

import os
import shutil

import pytest
import yaml

from restrain_openrlhf.commands.k8s.command import build
from restrain_openrlhf.commands.k8s.experiment import data_words
from tests.command_line import restrain
from tests.commands.k8s.experiments import rendered
from tests.commands.k8s.manifests import of_kind, pods
from tests.commands.k8s.test_names import unresolved
from tests.conftest import ROOT
from tests.docs.printed import fenced

ONE_NODE = "single-node-8gpu"
GPU = "nvidia.com/gpu"


def step_of(each):
    return each["metadata"]["labels"]["app.kubernetes.io/component"]


def test_volumes_are_what_the_cluster_has():
    words = ("--storage-class", "nfs-a", "--work-size", "2Ti", "--only", "platform")
    claims = of_kind(rendered(*words, overlay=ONE_NODE), "PersistentVolumeClaim")
    found = {each["metadata"]["name"]: each["spec"] for each in claims}
    assert {name: spec["resources"]["requests"]["storage"] for name, spec in found.items()} == {
        "models": "200Gi",
        "work": "2Ti",
    }
    assert {(spec["storageClassName"], *spec["accessModes"]) for spec in found.values()} == {("nfs-a", "ReadWriteOnce")}


def test_the_overlay_that_the_page_prints_keeps_its_labels_beside_the_gpu_type(tmp_path):
    page = (ROOT / "docs" / "operations" / "kubernetes.md").read_text(encoding="utf-8")
    (own,) = (each for each in fenced(page, "yaml") if "kind: Kustomization" in each)
    tree = tmp_path / "k8s"
    shutil.copytree(ROOT / "k8s", tree)
    overlay = tree / "overlays" / "ours"
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text(own)
    shutil.copy(tree / "overlays" / "single-node" / "overlay.yaml", overlay)
    config = "one_gpu/24gb/qwen3-0.6b-base"
    objects = rendered("--manifests", tree, "--gpu-product", "NVIDIA-A10", config=config, overlay="ours")
    assert {each["metadata"].get("namespace", "team-rl") for each in objects} == {"team-rl"}
    for each in of_kind(objects, "Job"):
        pod = each["spec"]["template"]["spec"]
        gpus = step_of(each) in ("gpu-check", "reference", "train", "evaluation")
        assert pod.get("nodeSelector") == ({"pool": "gpu", "nvidia.com/gpu.product": "NVIDIA-A10"} if gpus else None)
        assert [each["key"] for each in pod.get("tolerations", [])] == (["nvidia.com/gpu", "team"] if gpus else [])


def test_what_is_said_of_the_cluster_is_in_its_objects():
    words = ("--prometheus-release", "kps", "--pull-secrets", "a", "--pull-secrets", "b", "--only", "platform")
    objects = rendered(*words)
    monitors = of_kind(objects, "PodMonitor", "ServiceMonitor", "PrometheusRule")
    assert {each["metadata"]["labels"]["release"] for each in monitors} == {"kps"}
    for account in of_kind(objects, "ServiceAccount"):
        assert account["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    without = rendered("--no-monitoring", "--only", "platform")
    assert of_kind(without, "PodMonitor", "ServiceMonitor", "PrometheusRule") == []


def test_pods_with_a_gpu_ask_for_nvidias_runtime_where_it_is_not_the_default(tmp_path):
    """In an overlay of one's own, with the component."""
    parts = {"resources": "overlays/multi-node-h100", "components": "components/runtime-class"}
    own = {key: [os.path.relpath(ROOT / "k8s" / part, tmp_path)] for key, part in parts.items()}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
    classes = {(bool(pod.gpus), pod.spec.get("runtimeClassName")) for pod in pods(build(tmp_path))}
    assert classes == {(True, "nvidia"), (False, None)}


def test_files_are_copied_through_a_pod_that_ends_by_itself():
    (pod,) = of_kind(rendered("--only", "files"), "Pod")
    assert pod["metadata"]["name"] == "files-dapo14k-qwen3-4b-restrain"
    mounts = {each["name"]: each["mountPath"] for each in pod["spec"]["containers"][0]["volumeMounts"]}
    assert mounts["work"] == "/mnt/work"
    assert pod["spec"]["activeDeadlineSeconds"] <= 4 * 3600


WHOLE = ["prepare", "dapo14k", "--keep"]


@pytest.mark.parametrize(
    ("prompts", "job", "words"),
    [
        ("dapo14k", "train", [*WHOLE, "--out=/d/dapo14k.jsonl"]),
        (
            "dapo14k.supervised",
            "train",
            [*WHOLE, "--out=/d/dapo14k.jsonl", "--supervised=/d/dapo14k.supervised.jsonl"],
        ),
        ("dapo14k.6400", "train", [*WHOLE, "--first=6400", "--out=/d/dapo14k.6400.jsonl"]),
        ("aime24", "test-time", ["benchmarks", "aime24", "--problems-only", "--out=/d"]),
        # Training on the problems of a benchmark is nobody's wish by a file's name alone; neither has a known place.
        ("aime24", "train", None),
        ("s1k", "train", None),
        ("mine", "test-time", None),
    ],
)
def test_what_a_prompt_file_is_made_of_follows_from_its_name(prompts, job, words):
    assert data_words(f"/d/{prompts}.jsonl", job) == words
    assert list(unresolved(["restrain", "data", *(words or ["list"])])) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"overlays": "single-node"},
        {"work_size": "2 TB"},
        {"gpu_product": "NVIDIA H100 80GB"},
        {"environment": {"HF_TOKEN": "hf_abc"}},
        {"environment": {"HTTPS_PROXY": "http://user:password@proxy.example"}},
        {"ca_certificate": "company-ca"},
        {"prometheus_release": "kube prometheus"},
    ],
    ids=str,
)
def test_what_no_cluster_has_is_refused_by_its_key(wrong, tmp_path):
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump(wrong))
    done = restrain("k8s", "render", "cpu/demo", "--cluster", path, "--out", tmp_path / "out")
    assert (done.returncode, next(iter(wrong)) in done.stderr) == (2, True)
