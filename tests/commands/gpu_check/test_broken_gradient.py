"""Each gradient line fails where what it is about is broken in the product, and only it; in both orders of patches."""

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
PACKED = {name for name in EVERY if "packed" in name}
DYNAMIC = {name for name in EVERY if "dynamic" in name}
IN_BF16 = {name for name in EVERY if name.startswith("bf16")}
# The CPU's packing is torch's attention, and so fails with it.
FAIL = {
    "nullcontext": set(),
    "summed_before_the_clip": EVERY,
    "kl_without_its_weight": EVERY,
    "old_policy_forgotten": EVERY,
    "means_of_micro_batches": {"fp32, micro-batches", "bf16, micro-batches"},
    "means_of_dynamic_micro_batches": DYNAMIC,
    "packed_as_one_sequence": PACKED,
    "heads_of_other_groups": PACKED,
    "tokens_that_look_ahead": EVERY,
    "temperature_forgotten": {OWN.name},
    "dynamic_mend_lost": DYNAMIC & IN_BF16,
    "sums_in_the_weights_type": {OWN.name},
}
# Of the two that are patches of ours, the line of the hook says which was lost.
LOST = {
    "dynamic_mend_lost": "DeepspeedStrategy.get_ds_train_config",
    "sums_in_the_weights_type": "DeepSpeedZeroOptimizer.get_all_grad_tensors",
}


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def found(request):
    """Every break's lines, all in one process; in CUDA's order its stand-ins are in place before the hook is."""
    needs_its_accelerator()
    words = [sys.executable, "-m", "tests.commands.gpu_check.broken_gradient_case", request.param, *BREAKS]
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


def test_a_right_sum_of_many_is_far_below_the_limit_and_one_in_bf16_far_above(found):
    limit = LIMITS["bf16"]
    assert found["nullcontext"]["steps"][OWN.name]["hooked"] < limit / 4
    assert found["sums_in_the_weights_type"]["steps"][OWN.name]["hooked"] > 2 * limit


@pytest.mark.parametrize("name", BREAKS)
def test_the_hooks_line_names_a_function_that_was_lost(found, name):
    line = judge_patches(found[name]["not_patched"])
    assert (line.verdict == "fail") == (name in LOST)
    assert LOST.get(name, "") in line.found
