"""Each line of the check fails where what it is about is broken, and only then."""

import math
from dataclasses import replace

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

from restrain_openrlhf.config.yaml_file import load_run_config  # noqa: E402
from restrain_openrlhf.demo.tasks import ADDITION  # noqa: E402
from restrain_openrlhf.gpu_check.adapting import PROBLEMS, STEPS, judge_adaptation  # noqa: E402
from restrain_openrlhf.gpu_check.gradient import CASES, PACKED, judge_gradient, judge_patches  # noqa: E402
from restrain_openrlhf.gpu_check.memory import Estimated, check_estimate, extrapolate, judge_estimate  # noqa: E402
from restrain_openrlhf.gpu_check.outcome import Verdict  # noqa: E402
from restrain_openrlhf.gpu_check.sampling import judge_sampling  # noqa: E402
from restrain_openrlhf.gpu_check.setting import on_one_gpu  # noqa: E402
from restrain_openrlhf.gpu_check.small_run import STEPS as RUN_STEPS  # noqa: E402
from restrain_openrlhf.gpu_check.speed import Speed, judge_ratio, judge_tokens  # noqa: E402
from restrain_openrlhf.gpu_check.stack import judge_kernels  # noqa: E402
from restrain_openrlhf.gpu_check.training import judge_resume, judge_syncs  # noqa: E402
from restrain_openrlhf.hook.engine_case import EngineSeen  # noqa: E402
from restrain_openrlhf.hook.gradient_case import GradientGap  # noqa: E402
from restrain_openrlhf.hook.peak_case import PeakSeen  # noqa: E402
from restrain_openrlhf.memory import GIB, shape_of  # noqa: E402
from restrain_openrlhf.memory.engine import CONTEXT  # noqa: E402
from restrain_openrlhf.run.metrics import StepRow  # noqa: E402
from restrain_openrlhf.run.train import arguments_here  # noqa: E402
from tests.conftest import ROOT  # noqa: E402

FINE = EngineSeen(
    repeated_alone=1.0,
    repeated_in_a_batch=0.5,
    repeated_batch=0.75,
    differing_seeds=6,
    seeds=8,
    positions=90,
    bad_ranks=0,
    logprob_gap=0.01,
    logprob_gap_relative=0.02,
    leaves=5,
    leaves_apart_from_root=0,
    tree_gap_relative=0.02,
    ends_at_stop=True,
    ends_at_limit=True,
    ends_at_eos=True,
    freed=0.8,
    same_after_wake=True,
)


def failures(outcomes) -> list[str]:
    return [outcome.name for outcome in outcomes if outcome.verdict is Verdict.FAILED]


def test_an_engine_as_it_must_be_passes_though_batches_change_its_tokens():
    assert failures(judge_sampling(FINE)) == []
    assert "in a batch 50%" in judge_sampling(FINE)[0].found


@pytest.mark.parametrize(
    ("broken", "line"),
    [
        ({"repeated_alone": 0.875}, "vLLM: seeds"),
        ({"differing_seeds": 1}, "vLLM: seeds"),
        ({"bad_ranks": 1}, "vLLM: top-20 ranks"),
        ({"positions": 0}, "vLLM: top-20 ranks"),
        ({"logprob_gap_relative": 0.3}, "vLLM: top-20 ranks"),
        ({"logprob_gap_relative": math.nan}, "vLLM: top-20 ranks"),
        ({"leaves_apart_from_root": 1}, "vLLM: one tree"),
        ({"leaves": 1}, "vLLM: one tree"),
        ({"tree_gap_relative": 0.3}, "vLLM: one tree"),
        ({"ends_at_stop": False}, "vLLM: stop tokens"),
        ({"ends_at_limit": False}, "vLLM: stop tokens"),
        ({"ends_at_eos": False}, "vLLM: stop tokens"),
        ({"freed": 0.1}, "vLLM: sleep and wake"),
        ({"same_after_wake": False}, "vLLM: sleep and wake"),
    ],
)
def test_an_engine_that_differs_fails_where_it_does(broken, line):
    assert failures(judge_sampling(replace(FINE, **broken))) == [line]


def test_an_engine_that_cannot_sleep_is_skipped_and_says_why():
    sleep = judge_sampling(replace(FINE, freed=None, same_after_wake=None))[-1]
    assert sleep.verdict is Verdict.SKIPPED
    assert "no sleep mode" in sleep.found


def gap(word, hooked, kl=0.041):
    return GradientGap(word, hooked, net_advantage=0.6, kl_without_prompt_weight=kl, clipped_share=0.6)


def test_a_gradient_is_judged_by_its_numeric_type():
    assert failures([judge_gradient(gap("fp32", 1e-6)), judge_gradient(gap("bf16", 3e-3))]) == []
    assert failures([judge_gradient(gap("fp32", 3e-3))]) == ["gradient: fp32, whole"]
    # What the step had where dynamic batching kept the last micro-batch alone.
    assert failures([judge_gradient(gap("bf16+dynamic", 0.817))]) == ["gradient: bf16, dynamic"]
    assert failures([judge_gradient(gap("bf16", math.nan))]) == ["gradient: bf16, whole"]


def test_a_case_that_could_not_tell_a_wrong_loss_fails():
    outcome = judge_gradient(gap("bf16", 1e-3, kl=0.01))
    assert outcome.verdict is Verdict.FAILED
    assert "shows nothing" in outcome.found


def test_every_numeric_type_is_tried_in_every_batching():
    names = [case.name for case in (*CASES, *PACKED)]
    assert len(set(names)) == 8
    assert {"fp32, dynamic", "bf16, packed", "bf16, packed, dynamic"} <= set(names)


def test_a_method_that_is_not_patched_is_named():
    assert "X.y" in judge_patches(["X.y"]).found
    assert failures([judge_patches(["X.y"]), judge_patches([])]) == ["hook"]


def test_a_kernel_that_is_far_from_full_precision_fails():
    outcomes = judge_kernels({"matrix product": 0.002, "attention": 0.5})
    assert failures(outcomes) == ["kernel: attention"]
    assert failures(judge_kernels({"attention": math.nan})) == ["kernel: attention"]


def rows(*gaps, kl=0.1):
    return [
        StepRow(step, {"restrain/logprob_gap_relative": value, "restrain/kl": kl}, {})
        for step, value in enumerate(gaps, 1)
    ]


@pytest.mark.parametrize("broken", [(0.01, 0.2, 0.01), (0.01, None, 0.01), (0.01, math.nan), ()])
def test_weights_that_did_not_arrive_fail(broken):
    assert failures([judge_syncs(rows(*broken))]) == ["weights in vLLM"]
    assert failures([judge_syncs(rows(0.01, 0.02, 0.015))]) == []


def test_an_update_of_which_a_part_arrived_fails():
    def of(share):
        return [StepRow(1, {**rows(0.01)[0].numbers, "restrain/update_arrived": share}, {})]

    assert failures([judge_syncs(of(0.5))]) == ["weights in vLLM"]
    assert failures([judge_syncs(of(0.97))]) == []
    assert failures([judge_syncs([*of(0.97), *of(math.nan)])]) == ["weights in vLLM"]


def test_an_update_that_was_not_measured_has_no_share():
    outcome = judge_syncs(rows(0.01))
    assert "an update too small to tell" in outcome.found
    assert "arrived" not in outcome.numbers


def test_gaps_of_a_policy_that_did_not_move_show_nothing():
    assert "did not move" in judge_syncs(rows(0.01, 0.01, kl=1e-6)).found


def test_a_run_that_was_killed_must_go_on_from_its_checkpoint():
    whole = rows(*[0.01] * RUN_STEPS)
    fine = (whole[:3], whole, True, True)
    assert judge_resume(*fine).verdict is Verdict.PASSED
    broken = [
        (whole[:3], whole[:-1], True, True),
        (whole[:3], [*whole, whole[-1]], True, True),
        (whole[:3], whole, False, True),
        (rows(0.03, 0.01, 0.01), whole, True, True),
        (whole[:3], whole, True, False),
    ]
    assert len(failures([judge_resume(*each) for each in broken])) == len(broken)


def test_an_adaptation_without_its_votes_fails():
    votes = [{"vote_share": 0.5}] * PROBLEMS
    assert judge_adaptation(votes, {"steps": STEPS}).verdict is Verdict.PASSED
    broken = [(votes[1:], STEPS), ([*votes[1:], {"vote_share": 0}], STEPS), (votes, STEPS - 1)]
    assert len(failures([judge_adaptation(found, {"steps": steps}) for found, steps in broken])) == 3


def step(number, seconds, generated=1000.0):
    numbers = {
        "timing/step_total": seconds,
        "restrain/generated_tokens_per_second": generated,
        "restrain/trained_tokens_per_second": 2000.0,
    }
    return StepRow(number, numbers, {})


def test_speed_is_that_of_the_last_steps():
    """Those before were first after a start, or may have been."""
    found = Speed.of([step(1, 60.0), step(2, 7.0), step(3, 50.0), step(4, 8.0, 100.0), step(5, 9.0, 200.0)])
    assert found == Speed(step_seconds=8.5, generated_per_second=150.0, trained_per_second=2000.0)


def test_only_an_absurd_step_time_fails():
    assert judge_ratio(2.0, 1.0).verdict is Verdict.PASSED
    assert judge_ratio(4.0, 1.0).verdict is Verdict.FAILED
    assert judge_ratio(math.nan, 1.0).verdict is Verdict.FAILED


def test_a_speed_that_was_not_logged_fails():
    assert judge_tokens(Speed.of([step(1, 1.0)])).verdict is Verdict.PASSED
    without = StepRow(1, {"timing/step_total": 1.0}, {})
    assert judge_tokens(Speed.of([without])).verdict is Verdict.FAILED
    assert judge_tokens(Speed(1.0, 1000.0, math.inf)).verdict is Verdict.FAILED


def test_memory_is_extrapolated_along_the_line_through_two_measurements():
    """Apart from layers 5; each holds 4 and takes 5 at the peak: at 10 layers 45 and 55. Seconds: 1, and .1 each."""
    few, more = (PeakSeen(layers, 5 + 4 * layers, 5 + 5 * layers, 1 + layers / 10, 640) for layers in (2, 4))
    whole = extrapolate(few, more, 10)
    assert (whole.held, whole.peak, whole.tokens) == (45, 55, 640)
    assert whole.seconds == pytest.approx(2.0)
    assert extrapolate(few, more, 4).peak == more.peak


def test_an_estimate_is_put_right_by_the_measurement():
    """Alone 100 measured for 80 estimated: the 20 left out are there on each of the layout's GPUs: 50 + 20."""
    few, more = PeakSeen(2, 10, 20, 1.0, 64), PeakSeen(4, 20, 40, 2.0, 64)
    whole = extrapolate(few, more, 10)
    assert whole.peak == 100
    too_low = Estimated(alone=80, layout=50)
    assert judge_estimate(whole, too_low, 70).verdict is Verdict.PASSED
    assert judge_estimate(whole, too_low, 69).verdict is Verdict.FAILED
    assert judge_estimate(whole, too_low, 70).numbers["ratio"] == 1.25
    assert "measured 1.25 of the estimate" in judge_estimate(whole, too_low, None).found
    assert judge_estimate(whole, too_low, None).verdict is Verdict.PASSED
    # Too high: what the layout needs is less than estimated.
    assert judge_estimate(whole, Estimated(alone=125, layout=90), 65).verdict is Verdict.PASSED


DEMO = ROOT / "configs" / "cpu" / "demo.yaml"


def test_what_is_estimated_alone_is_the_policy_by_itself():
    """One GPU, its reference policy, its engine and CUDA's own memory left out; the layout has them where it shares."""
    flags = vars(arguments_here(load_run_config(DEMO)))
    shape = shape_of(str(ADDITION.model))
    shared = {**flags, **on_one_gpu()}
    separate, together = Estimated.of(flags), Estimated.of(shared)
    # ZeRO 0 on GPUs of its own: the layout has nothing more than CUDA's memory.
    assert separate.layout - separate.alone == CONTEXT
    # Two more contexts, the frozen reference policy in bf16, and 1 GiB of a vLLM asleep.
    assert together.layout - together.alone == 3 * CONTEXT + 2 * shape.parameters + GIB


def test_a_layout_without_an_estimate_is_skipped_and_says_why():
    few, more = PeakSeen(2, 10, 20, 1.0, 64), PeakSeen(4, 20, 40, 2.0, 64)
    config = load_run_config(DEMO, {"openrlhf.actor.model_name_or_path": "absent/model"})
    outcome = check_estimate(extrapolate(few, more, 10), config)
    assert outcome.verdict is Verdict.SKIPPED
    assert "absent/model: its shape is not known here" in outcome.found
