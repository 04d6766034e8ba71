"""A job killed with all its processes goes on: same prompts next, same weights and optimizer, no step lost."""

import os
import signal
import subprocess
import time

import psutil
import pytest

from tests.e2e.conftest import Job, optimizer_steps

pytestmark = [pytest.mark.host, pytest.mark.e2e, pytest.mark.timeout(1200)]


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


def test_killed_and_resumed_is_the_same_run(job, tmp_path):
    whole = Job(tmp_path / "whole", job.prompts)
    assert whole.train().returncode == 0, whole.log()[-3000:]
    kill_after_step(job, 3)
    killed = job.rows()
    done = job.train()
    assert done.returncode == 0, job.log()[-3000:]
    rows = job.rows()
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    digests = [row["votes"]["prompts_digest"] for row in rows]
    assert digests == [row["votes"]["prompts_digest"] for row in whole.rows()]
    assert len(set(digests)) == 6
    assert rows[:2] == killed[:2]
    assert "Loading the checkpoint" in job.log()
    assert optimizer_steps(job) == optimizer_steps(whole) == 6
    assert (job.run_dir / "model" / "model.safetensors").exists()
    again = job.train()
    assert again.returncode == 0
    assert job.rows() == rows


def test_a_run_that_ends_early_ends_there_after_a_kill_too(job):
    kill_after_step(job, 3, "steps=4")
    done = job.train("steps=4")
    assert done.returncode == 0, job.log()[-3000:]
    assert [row["step"] for row in job.rows()] == [1, 2, 3, 4]
    assert "Loading the checkpoint" in job.log()
    assert optimizer_steps(job) == 4
    # The checkpoint is at the last step: nothing is left but to save the model.
    (job.run_dir / "completed.json").unlink()
    again = job.train("steps=4")
    assert again.returncode == 0, job.log()[-3000:]
    assert [row["step"] for row in job.rows()] == [1, 2, 3, 4]
    assert (job.run_dir / "completed.json").exists()
