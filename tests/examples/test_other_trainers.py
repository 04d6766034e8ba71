"""The example of other trainers: its group, and two steps with TRL where that is installed."""

import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT

SCRIPT = ROOT / "examples" / "other_trainers.py"


def printed(*words):
    return subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, check=True, cwd=ROOT).stdout


def test_it_prints_the_groups_rows():
    first, *_, last = printed().splitlines()
    # 11 of 16 agree, so that u_x = g(11/16) = exp(-(5/16)^2 / .5); the reply that gives up loses by every label.
    assert first.split() == ["12", "11", "votes,", "weight", "0.717,", "A", "+0.255"]
    assert last.split()[:3] == ["None", "0", "votes,"]
    assert float(last.split()[-1]) < -0.9


def test_trl_trains_on_votes_alone():
    pytest.importorskip("trl", reason="needs TRL, in an environment of its own (docs/journeys/other_trainers.md)")
    text = printed("--steps", "2")
    shares = [float(share) for share in re.findall(r"held-out pass@1 .*: ([\d.]+)", text)]
    assert len(shares) == 2
    assert 0.2 < shares[0] < 0.5
    assert "restrain/majority_share" in text
