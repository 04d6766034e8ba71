"""Killed and resumed, or run again, a run is the same: prompts, optimizer steps, and with seeds every weight."""

import json
import os
import signal
import subprocess
import time

import psutil
import pytest

from tests.e2e.conftest import Job, on_request, optimizer_steps

pytestmark = [pytest.mark.host, pytest.mark.e2e, pytest.mark.timeout(1800)]

# Two episodes of three steps, with a checkpoint at the end of the first, ended in the middle of the second.
SEEDED = (
    "seeded_rollouts=true",
    "steps=5",
    "openrlhf.data.max_samples=24",
    "openrlhf.train.num_episodes=2",
    "openrlhf.ckpt.save_steps=3",
    "openrlhf.train.batch_size=32",
    "openrlhf.actor.lr_scheduler=linear",
)
TREES = ("method={name: ettrl, trees: 2, forks: 1, branches: 3, entropy_top_k: 8}",)


def kill_after_step(job: Job, step: int, *extra: str) -> None:
    """Start the job and SIGKILL every one of its processes as soon as `step` is in the metrics."""
    parent = subprocess.Popen(job.command(*extra), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    processes: set[psutil.Process] = {psutil.Process(parent.pid)}
    while not any(row["step"] >= step for row in job.rows()):
        assert parent.poll() is None, job.log()[-3000:]
        processes |= set(psutil.Process(parent.pid).children(recursive=True))
        time.sleep(0.2)
    for process in processes | set(psutil.Process(parent.pid).children(recursive=True)):
        if process.is_running():
            os.kill(process.pid, signal.SIGKILL)
    parent.wait()
    psutil.wait_procs(list(processes), timeout=30)


def result(job: Job) -> tuple[list[dict], bytes]:
    """What the run measured, times left out, and the model it wrote."""
    rows = [{name: value for name, value in row.items() if not name.startswith("timing/")} for row in job.rows()]
    return rows, (job.run_dir / "model" / "model.safetensors").read_bytes()


def trained(job: Job, *extra: str) -> tuple[list[dict], bytes]:
    done = job.train(*SEEDED, *extra)
    assert done.returncode == 0, job.log()[-3000:]
    return result(job)


def test_killed_and_resumed_is_the_same_run(job, tmp_path):
    whole = Job(tmp_path / "whole", job.prompts)
    rows, model = trained(whole)
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["actor_lr"] for row in rows] == pytest.approx([8e-5, 6e-5, 4e-5, 2e-5, 0.0]), "planned for five steps"
    assert json.loads((whole.run_dir / "completed.json").read_text()) == {"steps": 5, "stopped": None}
    kill_after_step(job, 4, *SEEDED)
    assert "Loading the checkpoint" not in job.log()
    resumed, after_kill = trained(job)
    assert "Loading the checkpoint" in job.log()
    assert resumed == rows
    assert after_kill == model
    # Of its two optimizer steps a batch, six were taken when the checkpoint was written.
    assert optimizer_steps(job) == optimizer_steps(whole) == 6
    assert trained(job) == (rows, model), "a run that has ended is returned at once"


@on_request
def test_trees_are_drawn_again_too(job, tmp_path):
    sets = (*TREES, "steps=2")
    assert trained(job, *sets) == trained(Job(tmp_path / "again", job.prompts), *sets)
