"""`seeded_rollouts` on the real stack: run again, or killed and resumed, a run ends in the same weights, bit by bit."""

import pytest

from tests.e2e.conftest import Job
from tests.e2e.test_resume import kill_after_step

pytestmark = [pytest.mark.host, pytest.mark.e2e, pytest.mark.timeout(1800)]

# Two episodes of three steps, with a checkpoint at the end of the first.
SEEDED = (
    "seeded_rollouts=true",
    "openrlhf.data.max_samples=24",
    "openrlhf.train.num_episodes=2",
    "openrlhf.ckpt.save_steps=3",
    "openrlhf.train.batch_size=32",
)
TREES = ("method={name: ettrl, trees: 2, forks: 1, branches: 3, entropy_top_k: 8}",)


def result(job: Job) -> tuple[list[dict], bytes]:
    """What the run measured, times left out, and the model it wrote."""
    rows = [{name: value for name, value in row.items() if not name.startswith("timing/")} for row in job.rows()]
    return rows, (job.run_dir / "model" / "model.safetensors").read_bytes()


def trained(job: Job, *extra: str) -> tuple[list[dict], bytes]:
    done = job.train(*SEEDED, *extra)
    assert done.returncode == 0, job.log()[-3000:]
    return result(job)


def test_the_same_run_ends_in_the_same_weights_also_killed_and_resumed(job, tmp_path):
    rows, model = trained(Job(tmp_path / "whole", job.prompts))
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    kill_after_step(job, 4, *SEEDED)
    assert "Loading the checkpoint" not in job.log()
    again, after_kill = trained(job)
    assert "Loading the checkpoint" in job.log()
    assert again == rows
    assert after_kill == model


def test_trees_are_drawn_again_too(job, tmp_path):
    sets = (*TREES, "steps=2")
    assert trained(job, *sets) == trained(Job(tmp_path / "again", job.prompts), *sets)
