"""What `restrain k8s render` takes of a cluster, the pod for files, and what prompts are made of."""

import shutil

import pytest

from restrain_openrlhf.commands.k8s.patches import data_words
from tests.commands.k8s import rules_jobs
from tests.commands.k8s.experiments import IMAGE, render, rendered
from tests.commands.k8s.manifests import needs_kustomize, of_kind, pods, runs
from tests.commands.k8s.rules_names import unresolved
from tests.conftest import ROOT
from tests.docs.printed import fenced

ONE_NODE = "single-node-8gpu"


def step_of(each):
    return each["metadata"]["labels"]["app.kubernetes.io/component"]


def refused(*words, out, overlay=ONE_NODE):
    needs_kustomize()
    done = render("--image", IMAGE, *words, out=out, overlay=overlay)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    return done.stderr


@pytest.mark.host
def test_volumes_are_what_the_cluster_has():
    words = ("--storage-class", "nfs-a", "--work-size", "2Ti", "--access-mode", "ReadWriteMany", "--only", "platform")
    objects = rendered(*words, overlay=ONE_NODE)
    found = {each["metadata"]["name"]: each["spec"] for each in of_kind(objects, "PersistentVolumeClaim")}
    assert {name: spec["storageClassName"] for name, spec in found.items()} == {"models": "nfs-a", "work": "nfs-a"}
    assert {name: spec["accessModes"] for name, spec in found.items()} == {name: ["ReadWriteMany"] for name in found}
    assert {name: spec["resources"]["requests"]["storage"] for name, spec in found.items()} == {
        "models": "200Gi",
        "work": "2Ti",
    }


@pytest.mark.host
def test_a_volume_of_one_node_is_enough_for_one_node_alone(tmp_path):
    claims = of_kind(rendered("--only", "platform", overlay=ONE_NODE), "PersistentVolumeClaim")
    assert [each["spec"]["accessModes"] for each in claims] == [["ReadWriteOnce"]] * 2
    assert "share volumes" in refused("--access-mode", "ReadWriteOnce", out=tmp_path / "made", overlay="8xa100-80g")


@pytest.mark.host
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
        gpus = step_of(each) in ("reference", "train", "evaluation")
        assert pod.get("nodeSelector") == ({"pool": "gpu", "nvidia.com/gpu.product": "NVIDIA-A10"} if gpus else None)
        keys = [each["key"] for each in pod.get("tolerations", [])]
        assert keys == (["nvidia.com/gpu", "team"] if gpus else [])


@pytest.mark.host
def test_what_no_cluster_takes_is_refused(tmp_path):
    out = tmp_path / "made"
    assert "'runtime' is unknown. Choose one of images" in refused("--components", "runtime", out=out)


@pytest.mark.host
def test_monitors_and_rules_have_the_label_that_prometheus_selects():
    objects = rendered("--prometheus-release", "kps", "--only", "platform")
    kinds = [each["kind"] for each in objects if each["metadata"].get("labels", {}).get("release") == "kps"]
    assert {"PodMonitor", "PrometheusRule"} <= set(kinds) <= {"PodMonitor", "ServiceMonitor", "PrometheusRule"}


@pytest.mark.host
@pytest.mark.parametrize("overlay", [ONE_NODE, "multi-node-h100"])
def test_pods_with_a_gpu_ask_for_nvidias_runtime_where_it_is_not_the_default(overlay):
    objects = rendered("--components", "runtime-class", overlay=overlay)
    classes = {pod.name: (bool(pod.gpus), pod.spec.get("runtimeClassName")) for pod in pods(objects)}
    assert set(classes.values()) == {(True, "nvidia"), (False, None)}


@pytest.mark.host
def test_files_are_copied_through_a_pod_that_ends_by_itself():
    (pod,) = of_kind(rendered("--only", "files"), "Pod")
    assert pod["metadata"]["name"] == "files-dapo14k-qwen3-4b-restrain"
    mounts = {each["name"]: each["mountPath"] for each in pod["spec"]["containers"][0]["volumeMounts"]}
    assert mounts["work"] == "/mnt/work"
    assert pod["spec"]["activeDeadlineSeconds"] <= 4 * 3600


@pytest.mark.parametrize(
    ("prompts", "job", "words"),
    [
        ("dapo14k", "train", ["prepare", "dapo14k", "--keep", "--out=/mnt/work/data/dapo14k.jsonl"]),
        (
            "dapo14k.supervised",
            "train",
            [
                "prepare",
                "dapo14k",
                "--keep",
                "--out=/mnt/work/data/dapo14k.jsonl",
                "--supervised=/mnt/work/data/dapo14k.supervised.jsonl",
            ],
        ),
        ("aime24", "test-time", ["benchmarks", "aime24", "--problems-only", "--out=/mnt/work/data"]),
        (
            "dapo14k.6400",
            "train",
            ["prepare", "dapo14k", "--keep", "--first=6400", "--out=/mnt/work/data/dapo14k.6400.jsonl"],
        ),
        # Training on the problems of a benchmark is nobody's wish by a file's name alone; neither has a known place.
        ("aime24", "train", None),
        ("s1k", "train", None),
        ("mine", "test-time", None),
    ],
)
def test_what_a_prompt_file_is_made_of_follows_from_its_name(prompts, job, words):
    assert data_words(f"/mnt/work/data/{prompts}.jsonl", job) == words
    assert list(unresolved(["restrain", "data", *(words or ["list"])])) == []


def test_a_data_step_that_makes_another_file_is_found():
    (problem,) = rules_jobs._fetched({"data": ["prepare", "dapo14k", "--out=/a.jsonl"]}, "/b.jsonl", set())
    assert "makes /a.jsonl, the experiment reads /b.jsonl" in problem


@pytest.mark.host
def test_the_run_has_its_gpus_from_the_layout():
    two = {"actor.num_gpus_per_node": 2, "ref.num_gpus_per_node": 2, "vllm.num_engines": 2}
    objects = rendered(
        *[w for name, value in two.items() for w in ("--set", f"openrlhf.{name}={value}")], overlay=ONE_NODE
    )
    (job,) = runs(objects)
    assert (job["metadata"]["name"], rules_jobs.worker_gpus(job)) == ("train-dapo14k-qwen3-4b-restrain", 2)
    (evaluation,) = [each for each in of_kind(objects, "Job") if step_of(each) == "evaluation"]
    assert evaluation["spec"]["completions"] == 8
