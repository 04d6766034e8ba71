"""The offline pass on a cluster, run: each step by the arguments of its rendered pod, up to what training reads.

Volumes are folders here, and the engine answers by rule; everything else is the commands themselves.
"""

import shutil

import pytest
import yaml

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from restrain_openrlhf.commands.k8s.stages import OFFLINE_PASS, stage_of
from restrain_openrlhf.config.this_machine import HostRun
from restrain_openrlhf.data.demo_tasks.problems import write_prompts
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION, training_problems
from restrain_openrlhf.hook.launch.preflight import check_inputs
from restrain_openrlhf.reference import load_reference, offline_pass, sampling_pass
from tests.command_line import restrain
from tests.commands.k8s.experiments import rendered
from tests.commands.k8s.manifests import Object, experiment_of
from tests.reference.votes_by_rule import Engine

PROBLEMS = 7
MODEL = "/mnt/models/addition"


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


@pytest.mark.parametrize(("shards", "rollouts"), [(1, 16), (3, 20)])
def test_what_the_steps_of_a_pass_write_is_what_training_reads(volumes, shards, rollouts):
    """The steps of the pass, and all that training checks before it, with a folder in place of the pods' volumes."""
    words = ("--shards", shards, "--set", f"pass_n={rollouts}", "--set", f"openrlhf.actor.model_name_or_path={MODEL}")
    objects = rendered(*words, config="one_gpu/24gb/qwen3-0.6b-base", overlay="single-node")
    objects = list(yaml.safe_load_all(yaml.safe_dump_all(objects).replace("/mnt/", f"{volumes}/mnt/")))
    jobs = {stage_of(each): each for each in objects if each["kind"] == "Job"}
    assert jobs["reference"]["spec"]["completions"] == shards
    for step in OFFLINE_PASS:
        if step in jobs:
            run_pods(jobs[step])
    config = experiment_of(objects, jobs["train"], volumes)
    check_inputs(config, HostRun.of(config).flags)
    rows = load_reference(config.reference).rows
    assert (len(rows), {row.n for row in rows}) == (PROBLEMS, {16})
