"""The gradient of a real OpenRLHF training step equals the paper's pseudo-code, differentiated directly."""

import json
import socket
import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = pytest.mark.host


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("agg_mode", ["token-mean", "seq-mean-token-mean"])
def test_the_gradient_of_a_real_step_is_the_papers(agg_mode):
    done = subprocess.run(
        [sys.executable, "-m", "tests.hook.gradient_case", agg_mode, str(free_port())],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    apart = json.loads(done.stdout.strip().splitlines()[-1])
    assert apart["clipped_share"] > 0.3
    assert apart["hooked"] < 1e-5
    assert apart["net"] > 1e-2
    assert apart["kl_without_prompt_weight"] > 1e-2
