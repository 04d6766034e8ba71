"""`restrain k8s render`: what it writes for a configuration, and what it refuses in one line."""

import pytest
import yaml

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.k8s.experiment import LONGEST_NAME, on_volume, run_name
from restrain_openrlhf.k8s.images import BY_DIGEST, configured_images
from restrain_openrlhf.k8s.kustomize import kustomize_command
from restrain_openrlhf.k8s.layout import Layout, plan
from restrain_openrlhf.k8s.overlay import NodeShape
from restrain_openrlhf.k8s.stages import Job, Stage, stages_of
from restrain_openrlhf.shipped import KUBERNETES
from tests.k8s import rules_jobs, rules_names, rules_pods
from tests.k8s.experiments import IMAGE, experiment, needs_kustomize, render, rendered, steps
from tests.k8s.manifests import pick

FLAGS = {
    "actor.num_nodes": 1,
    "actor.num_gpus_per_node": 8,
    "ref.num_nodes": 1,
    "ref.num_gpus_per_node": 8,
    "vllm.num_engines": 8,
    "vllm.tensor_parallel_size": 1,
    "algo.kl.init_coef": 0.001,
    "train.colocate_all": False,
    "train.colocate_actor_ref": False,
    "train.async_enable": False,
}
NODE_OF_8 = NodeShape(gpus_per_node=8, max_nodes=4, cpus_per_node=80)


def refused(*words, **kwargs):
    needs_kustomize()
    done = render(*words, **kwargs)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"train.colocate_all": True}, Layout(1, 8)),
        ({}, Layout(3, 8)),
        ({"train.colocate_actor_ref": True}, Layout(2, 8)),
        ({"algo.kl.init_coef": 0}, Layout(2, 8)),
        ({"train.colocate_all": True, "train.async_enable": True}, Layout(2, 8)),
        ({"train.colocate_all": True, "actor.num_nodes": 4, "vllm.num_engines": 32}, Layout(4, 8)),
        ({"train.colocate_all": True, "actor.num_gpus_per_node": 3, "vllm.num_engines": 3}, Layout(1, 3)),
    ],
)
def test_nodes_and_gpus_follow_from_the_placement_groups(changed, expected):
    assert plan({**FLAGS, **changed}, NODE_OF_8) == expected


@pytest.mark.parametrize(
    ("changed", "shape", "message"),
    [
        ({"vllm.num_engines": 4}, NODE_OF_8, "is no multiple of the 8"),
        ({"actor.num_nodes": 4}, NODE_OF_8, "this overlay has 4"),
        ({"actor.num_gpus_per_node": 16}, NODE_OF_8, "actor.num_gpus_per_node is 16"),
        ({"vllm.tensor_parallel_size": 16}, NODE_OF_8, "vllm.tensor_parallel_size is 16"),
        ({"train.colocate_all": True}, NodeShape(gpus_per_node=8, max_nodes=1, cpus_per_node=11), "have 11 CPUs"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(changed, shape, message):
    with pytest.raises(ConfigError, match=message):
        plan({**FLAGS, **changed}, shape)


@pytest.mark.host
def test_the_experiment_is_in_every_step(tmp_path):
    sets = {
        "run_dir": "runs/mine",
        "openrlhf.actor.num_nodes": 2,
        "openrlhf.ref.num_nodes": 2,
        "openrlhf.vllm.num_engines": 16,
    }
    words = [word for name, value in sets.items() for word in ("--set", f"{name}={value}")]
    objects = rendered("--shards", 4, *words, overlay="multi-node-h100")
    job = pick(objects, "RayJob", "train-mine")
    assert rules_jobs.worker_gpus(job) == 16
    assert job["spec"]["suspend"] is True
    config = rules_jobs.experiment_of(objects, job, tmp_path)
    assert (str(config.run_dir), str(config.reference)) == (
        "/mnt/work/runs/mine",
        "/mnt/work/data/dapo14k.qwen3-4b.n16.jsonl",
    )
    reference = pick(objects, "Job", "reference")["spec"]
    words = reference["template"]["spec"]["containers"][0]["args"]
    assert reference["completions"] == 4
    out = "--out=/mnt/work/data/dapo14k.qwen3-4b.n16.jsonl"
    assert {"--n=16", out, "--shard=$(JOB_COMPLETION_INDEX)/4"} <= set(words)
    template = config.openrlhf["data.input_template"]
    assert f"--input-template={template}" in words
    merge = pick(objects, "Job", "merge-reference")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert merge[-1] == "/mnt/work/data/dapo14k.qwen3-4b.n16.shard-3-of-4.jsonl"
    evaluation = pick(objects, "Job", "evaluation")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--model=/mnt/work/runs/mine/model" in evaluation
    assert pick(objects, "Job", "prefetch")["spec"]["template"]["spec"]["containers"][0]["args"] == [
        "Qwen/Qwen3-4B-Base"
    ]
    assert [
        p for rule in (rules_pods.images_by_digest, rules_pods.pod_security_restricted) for p in rule(objects)
    ] == []


@pytest.mark.host
def test_an_offline_pass_may_have_rollouts_of_its_own_number():
    config = "configs/dapo14k/qwen3-4b-base/srt_offline.yaml"
    for objects, n in ((steps(config, "8xa100-80g"), 32), (rendered("--reference-n", 64, config=config), 64)):
        words = pick(objects, "Job", "reference")["spec"]["template"]["spec"]["containers"][0]["args"]
        assert {f"--n={n}", "--out=/mnt/work/data/dapo14k.qwen3-4b.n32.jsonl"} <= set(words)


@pytest.mark.host
def test_test_time_presets_render_to_a_job_that_the_command_line_takes():
    config = "configs/test_time/llama3.1-8b-instruct/math500/ttrl_protocol/ettrl.yaml"
    objects = rendered("--job", "test-time", config=config)
    name = "test-time-math500-ttrl-protocol-ettrl"
    job = pick(objects, "RayJob", name)
    assert [each["metadata"]["name"] for each in objects if each["kind"] == "Job"] == ["prefetch", "data"]
    words = job["spec"]["entrypoint"].split()
    assert words[words.index("--out") + 1] == "/mnt/work/runs/test-time-math500-ttrl_protocol-ettrl"
    assert words[words.index("--prompts") + 1] == "/mnt/work/data/math500.jsonl"
    assert list(rules_names.names_resolve([job])) == []
    assert rules_jobs.worker_gpus(job) == 8


@pytest.mark.host
def test_a_dollar_in_a_template_reaches_the_pod():
    objects = rendered("--set", "openrlhf.data.input_template=$(HOME) {} costs 5$", "--only", "reference")
    words = pick(objects, "Job", "reference")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--input-template=$$(HOME) {} costs 5$$" in words


@pytest.mark.host
def test_a_folder_gets_a_file_for_each_step_in_order(tmp_path):
    needs_kustomize()
    done = render("--image", IMAGE, out=tmp_path / "new")
    assert done.returncode == 0, done.stderr
    names = [path.name for path in sorted((tmp_path / "new").iterdir())]
    first = ["platform", "prefetch", "data", "benchmarks", "reference", "merge-reference"]
    steps = [*first, "train", "evaluation", "regrade"]
    assert names == [f"{number}-{step}.yaml" for number, step in enumerate(steps)]
    assert done.stderr.count("kubectl apply --server-side -f ") == len(steps)
    kinds = [each["kind"] for each in yaml.safe_load_all((tmp_path / "new" / "6-train.yaml").read_text())]
    assert sorted(set(kinds)) == ["ConfigMap", "NetworkPolicy", "RayJob"]
    assert "is not empty" in refused("--image", IMAGE, out=tmp_path / "new")


@pytest.mark.host
def test_steps_that_nothing_needs_are_left_out(tmp_path):
    own = {"actor.model_name_or_path": "/mnt/work/models/mine", "data.prompt_dataset": "data/mine.jsonl"}
    sets = [word for name, value in own.items() for word in ("--set", f"openrlhf.{name}={value}")]
    words = ("--set", "method={name: ttrl}", *sets)
    jobs = [each["metadata"]["name"] for each in rendered(*words) if each["kind"] == "Job"]
    assert jobs == ["benchmarks", "evaluation", "regrade"]
    assert [
        each["metadata"]["name"] for each in rendered("--job", "test-time", *words) if each["kind"] != "NetworkPolicy"
    ][-1] == ("test-time-dapo14k-qwen3-4b-restrain")


@pytest.mark.host
@pytest.mark.parametrize(
    ("words", "overlay", "message"),
    [
        ((), "8xa100-80g", "restrain-train has no digest"),
        (("--benchmarks", "math500,minerva"), "8xa100-80g", "'minerva' is no known benchmark. Known: math500"),
        (
            ("--set", "method.prompt_weight=none", "--only", "reference"),
            "8xa100-80g",
            "--only reference: the method 'restrain' reads no offline pass",
        ),
        (("--image", IMAGE), "8xh100", "Choose one of 8xa100-80g, multi-node-h100"),
        (("--image", IMAGE), "single-node", "a node of this overlay has 1 GPUs"),
        (("--image", "restrain-train=registry.example/x:latest"), "8xa100-80g", "no tags"),
        (("--image", IMAGE.replace("train=", "trein=")), "8xa100-80g", "The images are restrain-train"),
        (("--image", IMAGE, "--only", "reward"), "8xa100-80g", "restrain-reward has no digest"),
        (("--image", IMAGE, "--only", "training"), "8xa100-80g", "--only 'training': choose one of platform"),
        (("--image", IMAGE, "--only", "reward"), "multi-node-h100-rdma", "has no reward step"),
        (("--image", IMAGE, "--job", "serve"), "8xa100-80g", "--job 'serve': choose one of train, test-time"),
        (("--set", "openrlhf.ckpt.save_steps=-1"), "8xa100-80g", "start again from nothing"),
        (("--set", "openrlhf.logger.wandb.key=0123456789abcdef"), "8xa100-80g", "readable in the cluster"),
        (("--set", "run_dir=/home/somebody/run"), "8xa100-80g", "is outside the working folder"),
        (("--manifests", "docs"), "8xa100-80g", "has no overlays/"),
    ],
)
def test_bad_input_is_one_line(words, overlay, message):
    assert message in refused(*words, overlay=overlay)


def test_a_missing_or_old_kustomize_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="Install kubectl"):
        kustomize_command()
    for name in ("kubectl", "kustomize"):
        (tmp_path / name).write_text("#!/bin/sh\necho Kustomize Version: v4.5.4\n")
        (tmp_path / name).chmod(0o755)
    with pytest.raises(ConfigError, match="kustomize and kubectl brings an older one"):
        kustomize_command()


def test_names_are_ones_that_kubernetes_accepts():
    assert run_name("DAPO_14k/σ=0.5") == "dapo-14k-0-5"
    assert run_name("3-seeds") == "run-3-seeds"
    long = run_name("a" * 60)
    assert len(f"test-time-{long}") <= LONGEST_NAME
    assert long != run_name("a" * 61)


def test_paths_move_to_the_work_volume(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert on_volume(tmp_path / "runs" / "a") == "/mnt/work/runs/a"
    assert on_volume(tmp_path.parent.__class__("/mnt/models/m")) == "/mnt/models/m"
    with pytest.raises(ConfigError, match="outside the working folder"):
        on_volume(tmp_path.parent)


@pytest.mark.host
def test_a_model_that_can_be_no_id_of_the_hub_is_not_downloaded():
    study = experiment("configs/cpu/study/spurious/ttrl.yaml", "8xa100-80g")
    assert study.model == "/mnt/work/runs/study/spurious/model"
    assert Stage.PREFETCH not in stages_of(study, Job.TRAIN)


def test_the_trees_own_images_are_unset_on_purpose():
    for name, image in configured_images(KUBERNETES).items():
        assert BY_DIGEST.fullmatch(image)
        assert image == f"registry.invalid/{name}@sha256:{'0' * 64}"
