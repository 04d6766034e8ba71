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


def needs_its_accelerator() -> None:
    """OpenRLHF's strategy asks CUDA for a device as it starts, where the CUDA stack is installed."""
    import torch

    from restrain_openrlhf.hook.devices import detect

    if detect().has_gpus and not torch.cuda.is_available():
        pytest.skip("needs a GPU: the CUDA stack is installed")


AGG_MODES = ("token-mean", "seq-mean-token-mean")


@pytest.fixture(scope="module")
def steps():
    """A step in each mode, in a process of its own: DeepSpeed takes hold of the whole process."""
    needs_its_accelerator()
    done = subprocess.run(
        [sys.executable, "-m", "tests.hook.gradient_case", str(free_port()), *AGG_MODES],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.parametrize("agg_mode", AGG_MODES)
def test_the_gradient_of_a_real_step_is_the_papers(steps, agg_mode):
    apart = steps[agg_mode]
    assert apart["clipped_share"] > 0.3
    assert apart["hooked"] < 1e-5
    assert apart["net"] > 1e-2
    assert apart["kl_without_prompt_weight"] > 1e-2


def test_host_modules_that_are_imported_after_the_hook_are_patched(steps):
    assert steps["not_patched"] == []
