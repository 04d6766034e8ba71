"""The gradient of a real OpenRLHF training step equals the paper's pseudo-code, differentiated directly."""

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.processes import needs_its_accelerator

pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

from restrain_openrlhf.gpu_check.gradient import CASES, LIMITS  # noqa: E402
from restrain_openrlhf.hook.gradient_case import GradientCase  # noqa: E402

WORDS = [*(case.word for case in CASES), GradientCase(token_mean=False).word]


@pytest.fixture(scope="module")
def steps():
    """A step of each case, in a process of its own: DeepSpeed takes hold of the whole process."""
    needs_its_accelerator()
    words = [sys.executable, "-m", "restrain_openrlhf.hook.gradient_case", *WORDS]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    *gaps, patches = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')]
    return {gap["case"]: gap for gap in gaps} | patches


@pytest.mark.parametrize("word", WORDS)
def test_the_gradient_of_a_real_step_is_the_papers(steps, word):
    apart, limit = steps[word], LIMITS[GradientCase.of(word).dtype]
    assert apart["clipped_share"] > 0.3
    assert apart["hooked"] < (1e-5 if limit < 0.01 else limit)
    assert apart["net_advantage"] > 0.1
    assert apart["kl_without_prompt_weight"] > 1.5 * limit


def test_host_modules_that_are_imported_after_the_hook_are_patched(steps):
    assert steps["not_patched"] == []


def test_a_case_is_read_as_it_was_written():
    case = GradientCase("bf16", packed=True, dynamic=True)
    assert GradientCase.of(case.word) == case
    assert case.name == "bf16, packed, dynamic"
