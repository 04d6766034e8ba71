"""The offline pass on a cluster, run: each step by the arguments of its rendered pod, up to what training reads.

Volumes are folders here, and the engine answers by rule; everything else is the commands themselves.
"""

import shutil
from pathlib import Path

import pytest
import yaml

pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

from restrain_openrlhf.commands.k8s.stages import OFFLINE_PASS, stage_of  # noqa: E402
from restrain_openrlhf.config.this_machine import HostRun  # noqa: E402
from restrain_openrlhf.data.demo_tasks.addition import training_problems  # noqa: E402
from restrain_openrlhf.data.demo_tasks.problems import write_prompts  # noqa: E402
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION  # noqa: E402
from restrain_openrlhf.hook.launch.preflight import check_run  # noqa: E402
from restrain_openrlhf.reference import (  # noqa: E402
    Reference,
    load_reference,
    offline_pass,
    sampling_pass,
)
from tests.command_line import restrain  # noqa: E402
from tests.commands.k8s.experiments import ONE_GPU_PRESETS, job_of, rendered  # noqa: E402
from tests.commands.k8s.manifests import OVERLAYS, Object, experiment_of, overlay, runs  # noqa: E402
from tests.reference.votes_by_rule import Engine  # noqa: E402

PROBLEMS = 7
MODEL = "/mnt/models/addition"
WITH_MODEL = ("--set", f"openrlhf.actor.model_name_or_path={MODEL}")
PASSES = [preset for preset in ONE_GPU_PRESETS if job_of(preset) == "train"]


@pytest.fixture
def volumes(tmp_path, monkeypatch):
    """The volumes of the pods, with the model and the prompts; no GPU is seen."""
    shutil.copytree(ADDITION.model, tmp_path / MODEL.strip("/"))
    for name in ("dapo14k.jsonl", "dapo14k.6400.jsonl"):
        write_prompts(tmp_path / "mnt/work/data" / name, training_problems(PROBLEMS))
    monkeypatch.setenv("SHARDED_NOTES", str(tmp_path / "notes"))
    monkeypatch.setattr(offline_pass, "RolloutEngine", Engine)
    monkeypatch.setattr(sampling_pass, "visible_gpus", lambda: ())
    return tmp_path


def run_pods(job: Object) -> None:
    """A container of each of the job's pods, as Kubernetes starts it, one after the other."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    program, *command = container["command"]
    assert program == "restrain"
    for index in range(job["spec"].get("completions", 1)):
        words = [word.replace("$(JOB_COMPLETION_INDEX)", str(index)).replace("$$", "$") for word in container["args"]]
        done = restrain(*command, *words)
        assert done.returncode == 0, done.stderr


def what_training_reads(objects: list[Object], run: Object, folder: Path) -> Reference:
    """Run the steps of the pass with `folder` in place of the pods' volumes, and all that training checks before it."""
    text = yaml.safe_dump_all([run, *objects]).replace("/mnt/", f"{folder}/mnt/")
    run, *objects = yaml.safe_load_all(text)
    jobs = {stage_of(each): each for each in objects if each["kind"] == "Job"}
    for step in OFFLINE_PASS:
        if step in jobs:
            run_pods(jobs[step])
    config = experiment_of(objects, run, folder)
    check_run(config, HostRun.of(config).flags)
    reference = load_reference(config.reference)
    assert len(reference.rows) == PROBLEMS
    return reference


@pytest.mark.parametrize(("shards", "rollouts"), [(1, 16), (3, 20)])
def test_what_the_steps_of_a_pass_write_is_what_training_reads(volumes, shards, rollouts):
    words = ("--shards", shards, "--set", f"pass_n={rollouts}")
    objects = rendered(*WITH_MODEL, *words, config=PASSES[0], overlay="single-node")
    (sampling,) = [each for each in objects if "restrain-pass" in each["metadata"]["labels"]]
    assert sampling["spec"]["completions"] == shards
    assert {row.n for row in what_training_reads(objects, *runs(objects), volumes).rows} == {16}


@pytest.mark.parametrize("preset", PASSES)
def test_a_preset_for_one_gpu_trains_on_the_pass_that_its_node_draws(volumes, preset):
    objects = rendered(*WITH_MODEL, config=preset, overlay="single-node")
    what_training_reads(objects, *runs(objects), volumes)


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_as_it_is_trains_on_the_pass_that_it_draws(volumes, name):
    (run,) = [each for each in runs(overlay(name)) if each["metadata"]["name"] == "train"]
    model = experiment_of(overlay(name), run, volumes).openrlhf["actor.model_name_or_path"]
    run, *objects = yaml.safe_load_all(yaml.safe_dump_all([run, *overlay(name)]).replace(model, MODEL))
    what_training_reads(objects, run, volumes)
