"""The methods the paper compares with that no other run trains: two real steps each.

RESTRAIN, ETTRL and TTRL's votes are in test_training.py, TTRL and gold in test_study.py.
"""

import pytest

from restrain_openrlhf.reference import load_reference
from tests.e2e.conftest import Job

pytest.importorskip("openrlhf", reason="needs the training stack (make install)")
pytestmark = [pytest.mark.host, pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1200)]
TWO_STEPS = "openrlhf.data.max_samples=16"


def train(job: Job, method: str, *extra: str) -> list[dict]:
    done = job.train(f"method={method}", *extra)
    assert done.returncode == 0, done.stderr[-2000:] + job.log()[-3000:]
    rows = job.rows()
    assert [row["step"] for row in rows] == [1, 2]
    assert any(row["restrain/advantage_pos"] > 0 > row["restrain/advantage_neg"] for row in rows)
    return rows


def test_srt_trains_on_the_labels_of_one_offline_pass(reference, tmp_path):
    job = Job(tmp_path, reference.prompts)
    train(job, "{name: srt_offline}", TWO_STEPS, f"reference={reference.folder / 'ref.jsonl'}")


def test_srt_easy_trains_on_a_third_of_the_prompts(reference, tmp_path):
    """48 prompts, 16 of them easy: two steps of eight."""
    job = Job(tmp_path, reference.prompts)
    rows = train(job, "{name: srt_easy}", f"reference={reference.folder / 'ref.jsonl'}")
    assert [row["votes"]["prompts"] for row in rows] == [8, 8]
    shares = sorted(row.majority_share for row in load_reference(reference.folder / "ref.jsonl").rows)
    assert rows[0]["votes"]["majority_share_mean"] > sum(shares) / len(shares)
