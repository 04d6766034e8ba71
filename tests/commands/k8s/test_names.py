"""Every preset on every overlay: each command line parses by the real parsers, and each path lies in a volume."""

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import PurePosixPath
from typing import Any

import pytest
import typer
import yaml

from restrain_openrlhf.commands.k8s.stages import OFFLINE_PASS, SHARED, stage_of, stages_of
from restrain_openrlhf.commands.main import app
from restrain_openrlhf.config.gpu_layout import GpuLayout
from restrain_openrlhf.config.host_flags import host_flags, parse, to_arguments
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.data.benchmarks import BENCHMARKS, PAPER_BENCHMARKS
from restrain_openrlhf.method import build
from restrain_openrlhf.reference.sampling_pass import Shard
from test_time.cli import app as adaptations
from tests.commands.k8s.experiments import PRESET, PRESETS, experiment, needs_kustomize, rendered, steps
from tests.commands.k8s.manifests import (
    OVERLAYS,
    Object,
    Pod,
    experiment_of,
    of_kind,
    overlay,
    pick,
    pods,
    runs,
    worker_gpus,
)
from tests.conftest import ROOT

OCTOTHINKER = "configs/dapo14k/octothinker-8b-hybrid-base/restrain.yaml"
# Ray hides the GPUs from an entrypoint that reserves none.
WITH_GPUS = re.compile(r"env (-C /mnt/work )?-u CUDA_VISIBLE_DEVICES ")


@cache
def programs() -> Mapping[str, Any]:
    """The command lines that a manifest may use, as click commands."""
    from huggingface_hub.cli.hf import app as hf

    return {"restrain": typer.main.get_command(app), "test-time": typer.main.get_command(adaptations), "hf": hf}


def command_lines(objects: list[Object]) -> Iterator[tuple[Pod, list[str]]]:
    """The words of every container that has a command, and of every RayJob's entrypoint, with their pod."""
    for each in pods(objects):
        for container in each.containers:
            if words := [*container.get("command", []), *container.get("args", [])]:
                yield each, [word.replace("$(JOB_COMPLETION_INDEX)", "0") for word in words]
        spec = each.owner["spec"]
        # Training runs on the head; what needs GPUs itself on the worker.
        if each.role == ("worker" if "entrypointResources" in spec else "head"):
            yield each, shlex.split(WITH_GPUS.sub("", spec["entrypoint"]))


def unresolved(words: Sequence[str]) -> Iterator[str]:
    """What in one command line the real parsers or registries do not know."""
    if words[0] == "sh":
        return
    try:
        command, rest = programs()[words[0]], list(words[1:])
        while hasattr(command, "commands"):
            command = command.commands[rest.pop(0)]
            # The hub's program imports a command when it is run.
            command = command.materialize() if hasattr(command, "materialize") else command
        found = command.make_context(words[0], rest).params
        for name in (found.get("benchmarks") or "").split(","):
            assert not name or "=" in name or name in BENCHMARKS, name
        if shard := found.get("shard"):
            Shard.named(shard)
        for key in ("template", "input_template"):
            if "{" in str(found.get(key)):
                assert "PROBLEM" in found[key].replace("$$", "$").format("PROBLEM"), found[key]
    except Exception as error:  # noqa: BLE001 - typer and the hub's program each bring a click of their own
        yield f"{' '.join(words)}: {error!r}"


def unmounted(objects: list[Object]) -> Iterator[str]:
    """Paths in a pod's words that lie in none of its volumes, or in one that is read-only and are written."""
    configs = {each["metadata"]["name"]: each["data"] for each in of_kind(objects, "ConfigMap")}
    for pod, words in command_lines(objects):
        volumes = {each["name"]: each for each in pod.spec.get("volumes", [])}
        mounts = [each for container in pod.containers for each in container.get("volumeMounts", [])]
        for word in words:
            option, _, path = word.rpartition("=")
            holding = [each for each in mounts if PurePosixPath(path).is_relative_to(each["mountPath"])]
            if path.startswith("/") and not holding:
                yield f"{pod.name}: {path} is in no volume"
            for mount in holding:
                volume, inside = volumes[mount["name"]], PurePosixPath(path).relative_to(mount["mountPath"])
                if option == "--out" and mount.get("readOnly"):
                    yield f"{pod.name}: {path} is written to, and {mount['mountPath']} is read-only"
                if "configMap" in volume and str(inside) not in configs[volume["configMap"]["name"]]:
                    yield f"{pod.name}: {path} is no key of {volume['configMap']['name']}"


def disagreeing(objects: list[Object], run: Object, folder: Any) -> Iterator[str]:
    """What training is given that its steps do not make, or its pods do not have."""
    config = experiment_of(objects, run, folder)
    flags = vars(parse(to_arguments(host_flags(config))))
    if GpuLayout.of(flags).needed != worker_gpus(run):
        yield f"the layout needs {GpuLayout.of(flags).needed} GPUs, its workers have {worker_gpus(run)}"
    if flags["ckpt.save_steps"] <= 0 or not flags["ckpt.load_enable"]:
        yield "a preempted run starts from nothing"
    words = {stage_of(each): args_of(each) for each in of_kind(objects, "Job")}
    prompts, made = flags["data.prompt_dataset"], words.get("data")
    if made and not {f"--out={prompts}", f"--supervised={prompts}"} & set(made):
        folder_of, name = prompts.rsplit("/", 1)
        if made[0] != "benchmarks" or made[1:] != [
            name.removesuffix(".jsonl"),
            "--problems-only",
            f"--out={folder_of}",
        ]:
            yield f"training reads {prompts}, and {made} is made"
    if "evaluation" in words:
        wanted = {f"--model={config.run_dir}", f"--max-new-tokens={flags['rollout.max_new_tokens']}"}
        if not wanted <= set(words["evaluation"]):
            yield f"the evaluation lacks {wanted - set(words['evaluation'])}"
        named = {word.partition("=")[2] for word in words["evaluation"] if word.startswith("--benchmark")}
        if named != {word.removeprefix("--out=") for word in words["benchmarks"][1:]}:
            yield f"{named} are evaluated, and {words['benchmarks']} are made"


def args_of(job: Object) -> list[str]:
    return job["spec"]["template"]["spec"]["containers"][0].get("args", [])


@pytest.mark.parametrize("preset", PRESETS)
def test_what_a_presets_manifests_say_can_be_done(preset, tmp_path):
    needs_kustomize()
    for name in OVERLAYS:
        objects = steps(preset, name)
        found = [problem for _, words in command_lines(objects) for problem in unresolved(words)]
        (run,) = runs(objects)
        assert [*found, *unmounted(objects), *disagreeing(objects, run, tmp_path)] == [], name
    made = experiment(preset, "8xa100-80g")
    reads = made.job == "train" and build(load_run_config(ROOT / preset).method).needs_reference
    assert (set(OFFLINE_PASS[:2]) <= set(stages_of(made))) is reads
    # A reference that nobody makes would be waited for in vain.
    assert made.job == "test-time" or ("reference" in made.document) is reads


@pytest.mark.parametrize("name", OVERLAYS)
def test_what_an_overlay_says_as_it_is_can_be_done(name):
    objects = overlay(name)
    found = [problem for _, words in command_lines(objects) for problem in unresolved(words)]
    assert [*found, *unmounted(objects)] == []
    assert f"--benchmarks={','.join(PAPER_BENCHMARKS)}" in args_of(pick(objects, "Job", "evaluation"))


@pytest.mark.parametrize(
    "path", sorted((ROOT / "k8s" / "overlays").rglob("t*.yaml")), ids=lambda path: str(path.parent)
)
def test_an_overlays_own_run_is_the_preset_that_it_was_made_from(path):
    """Flags and method, but for the volume's folders and the nodes."""
    preset = load_run_config(ROOT / re.search(r"made from (\S+)\.$", path.read_text(), re.MULTILINE)[1])
    own = load_run_config(path)
    differing = {name for name, _ in own.openrlhf.items() ^ preset.openrlhf.items()}
    assert differing <= {"data.prompt_dataset", "actor.num_nodes", "ref.num_nodes", "vllm.num_engines"}
    assert own.method == preset.method


@pytest.mark.parametrize(
    ("preset", "name"),
    [
        (PRESET, "multi-node-h100-rdma"),
        ("configs/dapo14k/qwen3-4b-base/ttrl.yaml", "8xa100-80g"),
        ("configs/test_time/llama3.1-8b-instruct/aime24/restrain.yaml", "multi-node-h100"),
    ],
)
def test_the_real_rendering_has_the_words_that_are_checked_above(preset, name):
    assert comparable(rendered(config=preset, overlay=name)) == comparable(steps(preset, name))


def comparable(objects: list[Object]) -> str:
    """Without images, annotations of the objects themselves, order, and the hashes of names."""
    bare = [{**each, "metadata": {**each["metadata"], "annotations": None}} for each in objects]
    text = yaml.dump_all(sorted(bare, key=lambda each: (each["kind"], each["metadata"]["name"])))
    return re.sub(r"(image: ).*|(-experiment)-[a-z0-9]{10}|(restrain-train)@.*", r"\1\2\3", text)


@pytest.mark.parametrize(
    ("preset", "overlay", "days"),
    [
        (OCTOTHINKER, "single-node-8gpu", 60),
        # Without Kueue its clock runs while its pods wait.
        (PRESET, "8xa100-80g", 28),
        (PRESET, "multi-node-h100", 14),
    ],
)
def test_a_trys_deadline_is_the_configurations_or_the_trees(preset, overlay, days):
    needs_kustomize()
    (job,) = runs(steps(preset, overlay))
    spec = job["spec"] if job["kind"] == "RayJob" else job["spec"]["template"]["spec"]
    assert spec["activeDeadlineSeconds"] == days * 24 * 3600


def identity(each: Object) -> tuple[str, str | None, str]:
    return each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]


def test_no_two_presets_have_an_object_in_common_but_the_platform():
    needs_kustomize()
    name = "8xa100-80g"
    # Those of a study have one folder between them: `restrain study` gives each its own.
    alone = [preset for preset in PRESETS if not preset.startswith("configs/cpu/study/")]
    own = [each for preset in alone for each in steps(preset, name) if stage_of(each) not in SHARED]
    assert [found for found, count in Counter(map(identity, own)).items() if count > 1] == []
    # Every pod and every policy is of one experiment.
    assert all(each["metadata"]["labels"]["restrain-experiment"] in each["metadata"]["name"] for each in own)


def test_the_reward_services_configuration_is_one():
    pytest.importorskip("uvicorn", reason="needs the reward service (pip install restrain-openrlhf[service])")
    from restrain_openrlhf.scoring.service.service_config import load_service_config

    load_service_config(ROOT / "k8s" / "base" / "reward" / "reward.yaml")
