"""Each gradient line fails where what it is about is broken in the product, and only it."""

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.processes import needs_its_accelerator

pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = [pytest.mark.host, pytest.mark.long]

from restrain_openrlhf.commands.gpu_check.gradient import LIMITS, judge_gradient, judge_patches  # noqa: E402
from tests.commands.gpu_check.broken_gradient_case import BREAKS, LINES, OWN  # noqa: E402

EVERY = {case.name for case in LINES}
FAIL = {
    "nullcontext": set(),
    "kl_without_its_weight": EVERY,
    "means_of_micro_batches": {"fp32, micro-batches", "bf16, micro-batches"},
    "packed_as_one_sequence": {name for name in EVERY if "packed" in name},
    "temperature_forgotten": {OWN.name},
    "dynamic_mend_lost": {name for name in EVERY if "dynamic" in name and name.startswith("bf16")},
}
# The one that is a patch of ours is named by the line of the hook.
LOST = {"dynamic_mend_lost": "DeepspeedStrategy.get_ds_train_config"}


@pytest.fixture(scope="module")
def found():
    """Every break's lines, all in one process."""
    needs_its_accelerator()
    words = [sys.executable, "-m", "tests.commands.gpu_check.broken_gradient_case"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"broken"')]
    return {row["broken"]: row for row in rows}


@pytest.mark.parametrize("name", BREAKS)
def test_what_is_broken_fails_its_own_lines_alone(found, name):
    steps = found[name]["steps"]
    outcomes = [judge_gradient(case, steps[case.name]) for case in (*LINES, OWN) if case.name in steps]
    assert {outcome.name for outcome in outcomes if outcome.verdict == "fail"} == {
        f"gradient: {line}" for line in FAIL[name]
    }
    assert not any("shows nothing" in outcome.found for outcome in outcomes)
    hook = judge_patches(found[name]["not_patched"])
    assert (hook.verdict == "fail", LOST.get(name, "") in hook.found) == (name in LOST, True)


def test_a_right_sum_of_many_is_far_below_the_limit(found):
    assert found["nullcontext"]["steps"][OWN.name]["hooked"] < LIMITS["bf16"] / 4
