"""`restrain k8s render`: what it writes for a configuration, and what it refuses in one line."""

import contextlib
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.commands.k8s.command import build
from restrain_openrlhf.commands.k8s.experiment import load_experiment, on_volume
from restrain_openrlhf.commands.k8s.stages import COMPONENT, OFFLINE_PASS, Stage, stages_of
from restrain_openrlhf.config.gpu_layout import LONGEST_NAME, Layout, NodeShape, plan, run_name
from restrain_openrlhf.config.host_flags import parse
from restrain_openrlhf.errors import ConfigError
from tests.commands.k8s.experiments import (
    IMAGE,
    experiment,
    needs_kustomize,
    render,
    rendered,
)
from tests.commands.k8s.manifests import experiment_of, pick, worker_gpus
from tests.conftest import ROOT

# OpenRLHF's defaults are 8 GPUs for each model, nothing colocated; 2304 rollouts are whole batches on 3 GPUs and on 32.
FLAGS = vars(parse([])) | {
    "vllm.num_engines": 8,
    "rollout.batch_size": 144,
    "rollout.n_samples_per_prompt": 16,
    "train.batch_size": 2304,
}
NODE_OF_8 = NodeShape(gpus_per_node=8, max_nodes=4, cpus_per_node=80)


def refused(*words, out="nowhere/new", **kwargs):
    needs_kustomize()
    done = render(*words, out=out, **kwargs)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"train.colocate_all": True}, Layout(1, 8)),
        ({}, Layout(3, 8)),
        ({"train.colocate_all": True, "train.async_enable": True}, Layout(2, 8)),
        (
            {"train.colocate_all": True, "actor.num_nodes": 4, "ref.num_nodes": 4, "vllm.num_engines": 32},
            Layout(4, 8),
        ),
        (
            {
                "train.colocate_all": True,
                "actor.num_gpus_per_node": 3,
                "ref.num_gpus_per_node": 3,
                "vllm.num_engines": 3,
            },
            Layout(1, 3),
        ),
    ],
)
def test_nodes_and_gpus_follow_from_the_placement_groups(changed, expected):
    assert plan({**FLAGS, **changed}, NODE_OF_8) == expected


@pytest.mark.parametrize(
    ("changed", "shape", "message"),
    [
        ({"vllm.num_engines": 4}, NODE_OF_8, "is not a multiple of the 8"),
        ({"actor.num_nodes": 4}, NODE_OF_8, "this overlay allows 4"),
        ({"actor.num_gpus_per_node": 16}, NODE_OF_8, "actor.num_gpus_per_node is 16"),
        ({"vllm.tensor_parallel_size": 16}, NODE_OF_8, "vllm.tensor_parallel_size is 16"),
        ({"train.colocate_all": True}, NodeShape(gpus_per_node=8, max_nodes=1, cpus_per_node=11), "have 11 CPUs"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(changed, shape, message):
    with pytest.raises(ConfigError, match=message):
        plan({**FLAGS, **changed}, shape)


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
    assert worker_gpus(job) == 16
    config = experiment_of(objects, job, tmp_path)
    assert str(config.run_dir) == "/mnt/work/runs/mine"
    assert PASS.fullmatch(str(config.reference))[2] == ".first-16"
    whole = str(config.reference).replace(".first-16", "")
    words = args_of(objects, "reference-mine")
    assert pick(objects, "Job", "reference-mine")["spec"]["completions"] == 4
    assert {"--n=32", f"--out={whole}", "--shard=$(JOB_COMPLETION_INDEX)/4"} <= set(words)
    assert f"--input-template={config.openrlhf['data.input_template']}" in words
    parts = [whole.replace(".jsonl", f".shard-{index}-of-4.jsonl") for index in range(4)]
    assert args_of(objects, "merge-reference-mine") == [f"--out={whole}", *parts]
    assert args_of(objects, "subset-reference-mine") == [f"--out={config.reference}", "--n=16", whole]
    assert "--model=/mnt/work/runs/mine" in args_of(objects, "evaluation-mine")
    assert args_of(objects, "prefetch-mine") == ["Qwen/Qwen3-4B-Base"]


# The pass of a preset: prompts, model, what it is drawn with, rollouts of each prompt, and those of them that are read.
PASS = re.compile(r"/mnt/work/passes/dapo14k\.qwen3-4b-base\.([0-9a-f]{8})\.n\d+(\.first-\d+)?\.jsonl")


def args_of(objects, name):
    return pick(objects, "Job", name)["spec"]["template"]["spec"]["containers"][0]["args"]


QWEN = "configs/dapo14k/qwen3-4b-base"


def pass_of(preset, **changed):
    sets = {f"openrlhf.{name}": value for name, value in changed.pop("openrlhf", {}).items()}
    shards = changed.pop("shards", 8)
    with contextlib.chdir(ROOT):
        return load_experiment(ROOT / preset, {**sets, **changed}, NODE_OF_8, shards).offline


def test_one_pass_serves_every_method_of_a_preset():
    srt, ours, ablated = (
        pass_of(f"{QWEN}/srt_offline.yaml"),
        pass_of(f"{QWEN}/restrain.yaml"),
        pass_of("configs/ablations/kappa-5.yaml"),
    )
    assert srt.file == ours.file == ablated.file
    assert (srt.reference, srt.is_cut) == (srt.file, False)
    assert ours.reference == ablated.reference == srt.file.with_name(f"{srt.file.stem}.first-16.jsonl")


@pytest.mark.parametrize(
    "changed",
    [
        {"openrlhf": {"actor.model_name_or_path": "Qwen/Qwen3-8B-Base"}},
        {"openrlhf": {"data.prompt_dataset": "other/dapo14k.jsonl"}},
        {"openrlhf": {"data.input_template": "{}"}},
        {"openrlhf": {"rollout.temperature": 0.6}},
        {"pass_n": 48},
        {"shards": 4},
    ],
    ids=str,
)
def test_passes_that_differ_lie_in_different_files(changed):
    usual, other = pass_of(f"{QWEN}/restrain.yaml"), pass_of(f"{QWEN}/restrain.yaml", **changed)
    assert {usual.file, usual.reference, *usual.parts}.isdisjoint({other.file, other.reference, *other.parts})
    assert usual.key != other.key


def test_what_does_not_change_the_draws_does_not_change_the_pass():
    usual = pass_of(f"{QWEN}/restrain.yaml")
    changed = {"actor.adam.lr": 1e-5, "train.num_episodes": 2, "vllm.num_engines": 8, "actor.num_nodes": 1}
    assert pass_of(f"{QWEN}/restrain.yaml", openrlhf=changed) == usual
    limited = pass_of(f"{QWEN}/restrain.yaml", engine={"max_num_seqs": 64})
    assert (limited.key, "--max-num-seqs=64" in limited.options.words()) == (usual.key, True)


def test_a_reference_on_a_volume_is_used_as_it_is():
    objects = rendered("--set", "reference=/mnt/work/data/mine.jsonl")
    assert not {each["metadata"]["labels"][COMPONENT] for each in objects} & set(OFFLINE_PASS)
    (config,) = [each for each in objects if "experiment.yaml" in each.get("data", {})]
    assert yaml.safe_load(config["data"]["experiment.yaml"])["reference"] == "/mnt/work/data/mine.jsonl"


def test_a_dollar_in_a_template_reaches_the_pod():
    objects = rendered("--set", "openrlhf.data.input_template=$(HOME) {} costs 5$", "--only", "reference")
    words = args_of(objects, "reference-dapo14k-qwen3-4b-restrain")
    assert "--input-template=$$(HOME) {} costs 5$$" in words


def test_a_folder_gets_a_file_for_each_step_in_order(tmp_path):
    needs_kustomize()
    done = render("--image", IMAGE, out=tmp_path / "new")
    assert done.returncode == 0, done.stderr
    names = [path.name for path in sorted((tmp_path / "new").iterdir())]
    offline = ["reference", "merge-reference", "subset-reference"]
    first = ["admin", "platform", "claims", "files", "prefetch", "data", "benchmarks", "gpu-check"]
    files = [*first, *offline, "premise", "train", "evaluation", "regrade"]
    assert names == [*(f"{number:02}-{step}.yaml" for number, step in enumerate(files, start=1)), "run.sh"]
    kinds = [each["kind"] for each in yaml.safe_load_all((tmp_path / "new" / "13-train.yaml").read_text())]
    assert (sorted(set(kinds)), kinds[-1]) == (["ConfigMap", "NetworkPolicy", "RayJob"], "RayJob")
    assert done.stderr.splitlines()[-1].endswith(f"{tmp_path}/new/run.sh")
    name = "dapo14k-qwen3-4b-restrain"
    script = (tmp_path / "new" / "run.sh").read_text()
    assert (tmp_path / "new" / "run.sh").stat().st_mode & 0o111
    assert re.search(
        rf'\nstep 15-regrade.yaml job/regrade-{name} [0-9a-f]{{12}}\nsay "Everything is complete."\n\Z', script
    )
    assert "is not empty" in refused("--image", IMAGE, out=tmp_path / "new")


def test_what_only_the_clusters_administrator_may_write_is_apart(tmp_path):
    needs_kustomize()
    done = render("--image", IMAGE, overlay="multi-node-h100", out=tmp_path / "new")
    assert done.returncode == 0, done.stderr
    kinds = {
        path.stem.partition("-")[2]: {each["kind"] for each in yaml.safe_load_all(path.read_text())}
        for path in (tmp_path / "new").glob("*.yaml")
    }
    admin = kinds.pop("admin")
    cluster_wide = {"Namespace", "PriorityClass", "ClusterQueue", "ResourceFlavor", "WorkloadPriorityClass"}
    assert admin == cluster_wide | {"ResourceQuota", "LocalQueue"}
    assert admin.isdisjoint(set().union(*kinds.values()))


def test_steps_that_nothing_needs_are_left_out():
    own = {"actor.model_name_or_path": "/mnt/work/models/mine", "data.prompt_dataset": "data/mine.jsonl"}
    sets = [word for key, value in own.items() for word in ("--set", f"openrlhf.{key}={value}")]
    words = ("--set", "method={name: ttrl}", *sets)
    name = "dapo14k-qwen3-4b-restrain"
    objects = rendered(*words)
    jobs = [each["metadata"]["name"] for each in objects if each["kind"] == "Job"]
    assert jobs == [f"{step}-{name}" for step in ("benchmarks", "evaluation", "regrade")]
    (job,) = [each for each in rendered("--set", "reference=runs/before.jsonl", *words) if each["kind"] == "RayJob"]
    assert re.fullmatch(f"test-time-{name}-[0-9a-f]{{6}}", job["metadata"]["name"])


@pytest.mark.parametrize(
    ("words", "overlay", "message"),
    [
        ((), "8xa100-80g", "restrain-train has no digest"),
        (("--benchmarks", "math500,minerva"), "8xa100-80g", "'minerva' is no known benchmark. Known: math500"),
        (
            ("--set", "method.prompt_weight=none", "--only", "reference"),
            "8xa100-80g",
            "--only reference: this run has no such step",
        ),
        (("--image", IMAGE), "8xh100", "unknown overlay. Give --overlay, or `overlay:` in --cluster FILE: 8xa100-80g"),
        (("--image", IMAGE), "single-node", "more than the GPUs of a node (1)"),
        (("--gpu-memory", 8), "8xa100-80g", "A GPU has 8.0 GiB, and what is certain alone needs"),
        (("--image", "restrain-train=registry.example/x:latest"), "8xa100-80g", "a tag alone is not enough"),
        (("--image", IMAGE, "--set", "run_dir=../run"), "8xa100-80g", "is outside the working folder"),
        (("--image", IMAGE, "--set", "run_dir=/mnt/work"), "8xa100-80g", "no folder on the work volume. Give a path"),
        (("--image", IMAGE.replace("train=", "trein=")), "8xa100-80g", "The images are restrain-train"),
        (("--image", IMAGE, "--only", "reward"), "multi-node-h100-rdma", "has no reward step"),
        (("--set", "openrlhf.ckpt.save_steps=-1"), "8xa100-80g", "start again from the beginning"),
        (("--set", "openrlhf.logger.wandb.key=0123456789abcdef"), "8xa100-80g", "on Kubernetes in a Secret"),
        (("--manifests", "docs"), "8xa100-80g", "has no overlays/"),
    ],
)
def test_bad_input_is_one_line(words, overlay, message):
    assert message in refused(*words, overlay=overlay)


def test_a_missing_kubectl_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"kubectl, .* is not on PATH. Install kubectl"):
        build(tmp_path)


def test_names_are_ones_that_kubernetes_accepts():
    assert run_name("dapo14k-qwen3-4b-restrain") == "dapo14k-qwen3-4b-restrain"
    assert re.fullmatch("dapo-14k-0-5-[0-9a-f]{6}", run_name("DAPO_14k/σ=0.5"))
    assert re.fullmatch("run-3-seeds-[0-9a-f]{6}", run_name("3-seeds"))
    long = run_name("a" * 60)
    assert len(f"test-time-{long}") <= LONGEST_NAME
    assert long != run_name("a" * 61)


@given(st.lists(st.text(min_size=1), unique=True, min_size=2, max_size=2), st.sampled_from(["/", "-", "_", "."]))
def test_other_folders_have_other_names(texts, joint):
    names = [run_name(text) for text in [*texts, joint.join(texts), joint.join(texts).upper()]]
    assert len(set(names)) == len({*texts, joint.join(texts), joint.join(texts).upper()})
    assert all(re.fullmatch("[a-z]([-a-z0-9]{0,35}[a-z0-9])?", name) for name in names)


def test_paths_move_to_the_work_volume(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert on_volume(tmp_path / "runs" / "a") == "/mnt/work/runs/a"
    assert on_volume(tmp_path.parent.__class__("/mnt/models/m")) == "/mnt/models/m"
    with pytest.raises(ConfigError, match="outside the working folder"):
        on_volume(tmp_path.parent)


def test_a_model_that_can_be_no_id_of_the_hub_is_not_downloaded():
    study = experiment("configs/cpu/study/spurious/ttrl.yaml", "8xa100-80g")
    assert study.model == "/mnt/work/runs/study/spurious/model"
    assert Stage.PREFETCH not in stages_of(study)
