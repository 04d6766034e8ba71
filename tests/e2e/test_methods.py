"""Each method the paper compares with, trained for real: Ray, vLLM and DeepSpeed, two steps."""

import sys

import pytest

from restrain_openrlhf.demo.run import MODEL
from restrain_openrlhf.demo.task import training_problems, write_gold
from restrain_openrlhf.reference import load_reference
from tests.e2e.conftest import Job, on_request, optimizer_steps, run

pytest.importorskip("openrlhf", reason="needs the training stack")
pytestmark = [pytest.mark.host, pytest.mark.e2e, pytest.mark.timeout(1200)]
TWO_STEPS = "openrlhf.data.max_samples=16"


def train(job: Job, method: str, *extra: str) -> list[dict]:
    done = job.train(f"method={method}", *extra)
    assert done.returncode == 0, done.stderr[-2000:] + job.log()[-3000:]
    rows = job.rows()
    assert [row["step"] for row in rows] == [1, 2]
    assert any(row["restrain/advantage_pos"] > 0 > row["restrain/advantage_neg"] for row in rows)
    return rows


def test_ttrl_votes_on_more_rollouts_than_it_trains_on(job):
    """Twelve prompts, batches of eight: the last one is filled, and both end in an optimizer step."""
    rows = train(job, "{name: ttrl, votes: 12, train_on: 8}", "openrlhf.data.max_samples=12")
    assert optimizer_steps(job) == 2
    assert [row["votes"]["rollouts"] for row in rows] == [96, 96]
    assert [row["rollout/num_samples"] for row in rows] == [64, 64]


@pytest.mark.parametrize("fork_token", ["resample", pytest.param("distinct", marks=on_request)])
def test_ettrl_trains_on_the_leaves_of_trees_forked_by_vllms_own_probabilities(job, fork_token):
    method = f"{{name: ettrl, trees: 2, forks: 1, branches: 3, ear: both, fork_token: {fork_token}}}"
    rows = train(job, method, TWO_STEPS)
    assert [row["votes"]["rollouts"] for row in rows] == [64, 64]
    assert all(0 < row["restrain/entropy"] < 3 for row in rows)
    assert all(row["votes"]["missing_share_of_rollouts"] < 0.5 for row in rows)


@pytest.fixture(scope="module")
def offline(tmp_path_factory) -> Job:
    """48 prompts with the frozen model's vote on each."""
    folder = tmp_path_factory.mktemp("offline")
    made = Job(folder, folder / "prompts.jsonl")
    write_gold(made.prompts, training_problems(48))
    lengths = ("--n", "8", "--max-new-tokens", "14", "--max-len", "32")
    words = ("reference", "--model", MODEL, "--prompts", made.prompts, "--out", folder / "ref.jsonl", *lengths)
    done = run([sys.executable, "-m", "restrain_openrlhf.cli.main", *map(str, words)])
    assert done.returncode == 0, done.stderr[-2000:]
    return made


def test_srt_trains_on_the_labels_of_one_offline_pass(offline, tmp_path):
    job = Job(tmp_path, offline.prompts)
    train(job, "{name: srt_offline}", TWO_STEPS, f"reference={offline.folder / 'ref.jsonl'}")


def test_srt_easy_trains_on_a_third_of_the_prompts(offline, tmp_path):
    """48 prompts, 16 of them easy: two steps of eight."""
    job = Job(tmp_path, offline.prompts)
    rows = train(job, "{name: srt_easy}", f"reference={offline.folder / 'ref.jsonl'}")
    assert [row["votes"]["prompts"] for row in rows] == [8, 8]
    shares = sorted(row.majority_share for row in load_reference(offline.folder / "ref.jsonl").rows)
    assert rows[0]["votes"]["majority_share_mean"] > sum(shares) / len(shares)
