"""The method that trains on a part of the prompts, in two real steps.

RESTRAIN, ETTRL and TTRL's votes are in test_training.py, TTRL and gold in test_study.py.
"""

import pytest

from restrain_openrlhf.reference import load_reference
from tests.e2e.conftest import Job

pytest.importorskip("openrlhf", reason="needs the training stack (make install)")
pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1200)]


def test_srt_easy_trains_on_a_third_of_the_prompts(reference, tmp_path):
    """48 prompts, 16 of them easy: two steps of eight."""
    job = Job(tmp_path, reference.prompts)
    done = job.train("method={name: srt_easy}", f"reference={reference.folder / 'ref.jsonl'}")
    assert done.returncode == 0, done.stderr[-2000:] + job.log()[-3000:]
    rows = job.rows()
    assert [row["step"] for row in rows] == [1, 2]
    assert any(row["restrain/advantage_pos"] > 0 > row["restrain/advantage_neg"] for row in rows)
    assert [row["votes"]["prompts"] for row in rows] == [8, 8]
    shares = sorted(row.majority_share for row in load_reference(reference.folder / "ref.jsonl").rows)
    assert rows[0]["votes"]["majority_share_mean"] > sum(shares) / len(shares)
