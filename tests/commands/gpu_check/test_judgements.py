"""Each line of the check fails where what it is about is broken, and only then."""

import math
from dataclasses import replace

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from restrain_openrlhf.commands.gpu_check.gradient import GradientCase, judge_gradient
from restrain_openrlhf.commands.gpu_check.memory import TrainingStep, estimated_bytes, extrapolate, judge_estimate
from restrain_openrlhf.commands.gpu_check.small_run import judge_digests, judge_syncs, on_one_gpu
from restrain_openrlhf.config.memory.estimate import CONTEXT
from restrain_openrlhf.config.memory.lines import GIB
from restrain_openrlhf.config.memory.shape import shape_of
from restrain_openrlhf.config.this_machine import HostRun
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION
from restrain_openrlhf.records.metrics import StepRow
from tests.conftest import ROOT


def failures(outcomes) -> list[str]:
    return [outcome.name for outcome in outcomes if outcome.verdict == "fail"]


def gradient(hooked, dtype="fp32", batching="whole", kl=0.041):
    gap = {"hooked": hooked, "net_advantage": 0.6, "kl_without_prompt_weight": kl, "clipped_share": 0.6}
    return judge_gradient(GradientCase(dtype, batching), gap)


def test_a_gradient_is_judged_by_its_numeric_type():
    assert failures([gradient(1e-6), gradient(3e-3, "bf16")]) == []
    assert failures([gradient(3e-3)]) == ["gradient: fp32, whole"]
    # What the step had where dynamic batching kept the last micro-batch alone.
    assert failures([gradient(0.817, "bf16", "dynamic")]) == ["gradient: bf16, dynamic"]
    assert failures([gradient(math.nan, "bf16")]) == ["gradient: bf16, whole"]


def test_a_case_that_could_not_tell_a_wrong_loss_fails():
    outcome = gradient(1e-3, "bf16", kl=0.01)
    assert outcome.verdict == "fail"
    assert "shows nothing" in outcome.found


def rows(*gaps, kl=0.1, factor=1.002):
    """Of each gap a step, on prompts of its own; None where a step has none."""
    found = [{} if gap is None else {"restrain/logprob_gap_relative": gap} for gap in gaps]
    common = {"restrain/kl": kl, "restrain/token_mult_prob_error": factor}
    return [
        StepRow(step, {**numbers, **common}, {"prompts_digest": f"{step}"}) for step, numbers in enumerate(found, 1)
    ]


def arrived(*shares):
    return [StepRow(1, {**rows(0.01)[0].numbers, "restrain/update_arrived": share}, {}) for share in shares]


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (rows(0.01, 0.2, 0.01), "at most 20.0%"),
        (rows(0.01, None, 0.01), "not finite, or missing"),
        (rows(0.01, math.nan), "not finite, or missing"),
        ([], "not finite, or missing"),
        (rows(0.01, 0.02, factor=1.11), "by a factor of 1.1100"),
        (rows(0.01, 0.02, factor=math.inf), "not finite, or missing"),
        ([*rows(0.01), *rows(0.01, kl=math.nan)], "in some of 2 steps: restrain/kl"),
        (rows(0.01, 0.01, kl=1e-6), "the policy did not move"),
        (arrived(0.97, 0.5), "with 50% of its update"),
        (arrived(0.97, math.nan), "of its update"),
    ],
)
def test_weights_that_did_not_arrive_fail(steps, said):
    outcome = judge_syncs(steps)
    assert (outcome.verdict, said in outcome.found) == ("fail", True), outcome.found


def test_weights_that_arrived_pass():
    assert failures(map(judge_syncs, [rows(0.01, 0.02, 0.015), rows(0.01, 0.02, factor=1.09), arrived(0.97)])) == []


def test_a_single_weight_with_other_bits_fails_and_is_named():
    loaded = {"norm": "aa", "head": "bb"}
    assert judge_digests([loaded, loaded], loaded).verdict == "pass"
    other = judge_digests([loaded, {"norm": "aa", "head": "cc"}], loaded)
    assert other.found.startswith("1 of 2 weights in 2 vLLM workers are")
    assert other.found.endswith("; not head")
    missing = judge_digests([{"norm": "aa"}], loaded)
    assert missing.found.endswith("; not head")
    beyond = judge_digests([{**loaded, "old head": "dd"}], loaded)
    assert beyond.found.endswith("; not old head")
    nothing = [judge_digests([], loaded), judge_digests([{}], {})]
    assert failures([other, missing, beyond, *nothing]) == ["weights in vLLM, bits"] * 5


def test_memory_is_extrapolated_along_the_line_through_two_measurements():
    """Apart from layers 5; each holds 4 and takes 5 at the peak: at 10 layers 45 and 55."""
    few, more = (TrainingStep(layers, 10, 5 + 4 * layers, 5 + 5 * layers, layers / 2, 8) for layers in (2, 4))
    assert extrapolate(few, more) == TrainingStep(10, 10, 45, 55, 5, 8)
    assert extrapolate(replace(few, whole=4), more).peak == more.peak


def test_an_estimate_is_put_right_by_the_measurement():
    """Alone 100 measured for 80 estimated: the 20 left out are there on each of the layout's GPUs: 50 + 20."""
    few, more = TrainingStep(2, 10, 10, 20, 1, 8), TrainingStep(4, 10, 20, 40, 2, 8)
    whole = extrapolate(few, more)
    assert whole.peak == 100
    too_low = {"alone": 80, "layout": 50}
    assert judge_estimate(whole, **too_low, gpu_bytes=70).verdict == "pass"
    assert judge_estimate(whole, **too_low, gpu_bytes=69).verdict == "fail"
    assert "1.25 of the estimate" in judge_estimate(whole, **too_low, gpu_bytes=None).found
    assert judge_estimate(whole, **too_low, gpu_bytes=None).verdict == "pass"
    # Too high: what the layout needs is less than estimated.
    assert judge_estimate(whole, alone=125, layout=90, gpu_bytes=65).verdict == "pass"


DEMO = ROOT / "configs" / "cpu" / "demo.yaml"


def test_what_is_estimated_alone_is_the_policy_by_itself():
    """One GPU, its reference policy, its engine and CUDA's own memory left out; the layout has them where it shares."""
    flags = HostRun.of(load_run_config(DEMO)).flags
    shape = shape_of(str(ADDITION.model))
    shared = {**flags, **on_one_gpu()}
    (alone, separate), (alone_too, together) = estimated_bytes(flags), estimated_bytes(shared)
    # ZeRO 0 on GPUs of its own: the layout has nothing more than CUDA's memory.
    assert separate - alone == CONTEXT
    # Two more contexts, the frozen reference policy in bf16, and 1 GiB of a vLLM asleep.
    assert together - alone_too == 3 * CONTEXT + 2 * shape.parameters + GIB
    counts = {f"{each}.{count}": 2 for each in ("actor", "ref") for count in ("num_nodes", "num_gpus_per_node")}
    sharded = {**flags, "ds.zero_stage": 2}
    spread = {**sharded, **counts, "train.colocate_actor_ref": True}
    assert estimated_bytes(spread)[0] == estimated_bytes(sharded)[0]
