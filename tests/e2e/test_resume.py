"""Killed and resumed, or run again, a run is the same: prompts, optimizer steps, and with seeds every weight."""

import json
from collections import Counter
from dataclasses import dataclass

import pytest

from restrain_openrlhf.records.kept import read_kept
from tests.e2e.conftest import Job, Trained, kill_after_step, optimizer_steps

# Two runs more than `make test` has time for; CI runs this file every time (rota.py).
pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1800)]


@dataclass(frozen=True)
class Pair:
    """The same run twice: `whole`, and `resumed`, which was killed after its third step and started again."""

    whole: Trained
    resumed: Job
    log_when_killed: str


@pytest.fixture(scope="module")
def pair(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    resumed = Job(tmp_path_factory.mktemp("resumed"), trained.prompts)
    kill_after_step(resumed, 3, *trained.given)
    log = resumed.log()
    done = resumed.train(*trained.given)
    assert done.returncode == 0, done.stderr[-2000:] + resumed.log()[-3000:]
    return Pair(trained, resumed, log)


def evaluations(job: Job) -> list[int]:
    return [json.loads(line)["step"] for line in (job.run_dir / "evaluations.jsonl").read_text().splitlines()]


def result(job: Job) -> tuple[list[dict], bytes]:
    """What the run measured, and the model it wrote."""
    return job.measured(), (job.run_dir / "model" / "model.safetensors").read_bytes()


def test_killed_and_resumed_is_the_same_run(pair: Pair):
    assert "Loading the checkpoint" not in pair.log_when_killed
    assert "Loading the checkpoint" in pair.resumed.log()
    assert result(pair.resumed) == result(pair.whole)
    assert evaluations(pair.resumed) == evaluations(pair.whole) == [0, 2]


def test_the_rollouts_that_a_resumed_run_keeps_are_those_of_a_whole_one(pair: Pair):
    kept = list(read_kept(pair.whole.run_dir))
    assert list(read_kept(pair.resumed.run_dir)) == kept
    assert Counter(group.step for group in kept) == {1: 3, 2: 3, 3: 3}
    assert len({tuple(group.group for group in kept if group.step == step) for step in range(1, 4)}) > 1
    assert [row["restrain/kept_groups"] for row in pair.resumed.rows()] == [3] * 3


def test_optimizer_steps_are_counted_on_from_the_checkpoint(pair: Pair):
    """Two optimizer steps a batch: four were taken when the checkpoint was written."""
    assert optimizer_steps(pair.resumed) == optimizer_steps(pair.whole) == 4


def test_a_run_that_has_ended_is_returned_at_once(pair: Pair):
    before = pair.resumed.log()
    done = pair.resumed.train(*pair.whole.given)
    assert done.returncode == 0
    assert pair.resumed.log() == before
    completed = json.loads((pair.resumed.run_dir / "completed.json").read_text())
    assert (completed["steps"], completed["stopped"]) == (3, None)
