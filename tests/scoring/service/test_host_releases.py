"""Each OpenRLHF release's own client, from 0.8.0 on, asks our service, and the host ends up with the net advantages."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the training stack (make install)")

from restrain_openrlhf.machine.host_releases import RELEASES, Way
from tests.host_releases import folder_of
from tests.scoring.service.clients import RESTRAIN, expected
from tests.scoring.service.conftest import END

pytestmark = [pytest.mark.host, pytest.mark.long, pytest.mark.timeout(300)]
CASE = Path(__file__).with_name("host_client_case.py")
# Where the client's code is new; all of them were tried (docs/journeys/integration.md).
CHANGED = [
    "0.8.0",
    "0.8.1",
    "0.8.10",
    "0.9.0",
    "0.9.1",
    "0.9.2",
    "0.9.8",
    "0.10.0",
    "0.10.1",
    "0.10.4",
    "0.11.1",
    "0.11.2",
]
CANNOT = ["0.8.3", "0.8.6", "0.8.9.post1"]
GROUPS = {"12+13=": (3, 3, 4, 5), "40+41=": (1, 1, 1, 2)}


def asked(release, url):
    rollouts = [[prompt, rf"so \boxed{{{answer}}}{END}"] for prompt, answers in GROUPS.items() for answer in answers]
    words = [str(CASE), str(folder_of(release)), url, json.dumps(rollouts)]
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("release", CHANGED)
def test_a_releases_client_gets_every_rollouts_net_advantage(standing, release):
    assert Way.URL in RELEASES[release].ways
    done = asked(release, standing(method=RESTRAIN).reward_url)
    assert done.returncode == 0, done.stderr[-2000:]
    nets = [sum(pair.expected) for answers in GROUPS.values() for pair in expected(answers)]
    assert json.loads(done.stdout.splitlines()[-1]) == pytest.approx(nets, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("release", CANNOT)
def test_a_release_that_reads_no_lists_is_left_out_of_the_table(standing, release):
    """Whatever a URL answers is JSON, and the host joins what it is given as tensors."""
    assert RELEASES[release].ways == frozenset()
    done = asked(release, standing(method=RESTRAIN).reward_url)
    assert done.returncode == 1
    assert "TypeError: expected Tensor as element 0 in argument 0, but got list" in done.stderr
