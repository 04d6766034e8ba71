"""Each line of the check fails where what it is about is broken, and only then."""

import math
from dataclasses import replace

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

from restrain_openrlhf.machine.devices import detect  # noqa: E402

detect().install()

import torch  # noqa: E402
import wrapt  # noqa: E402
from torch.nn.attention import varlen  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

from restrain_openrlhf.commands.gpu_check.gradient import (  # noqa: E402
    GradientCase,
    judge_gradient,
)
from restrain_openrlhf.commands.gpu_check.memory import (  # noqa: E402
    TrainingStep,
    estimated_bytes,
    extrapolate,
    judge_estimate,
)
from restrain_openrlhf.commands.gpu_check.small_run import (  # noqa: E402
    ADAPTED_PROBLEMS,
    ADAPTED_STEPS,
    STEPS,
    judge_adaptation,
    judge_digests,
    judge_resume,
    judge_syncs,
    on_one_gpu,
)
from restrain_openrlhf.commands.gpu_check.stack import judge_kernels, kernel_error, measure  # noqa: E402
from restrain_openrlhf.config.memory import (  # noqa: E402
    CONTEXT,
    GIB,
    shape_of,
)
from restrain_openrlhf.config.this_machine import HostRun  # noqa: E402
from restrain_openrlhf.config.yaml_file import load_run_config  # noqa: E402
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION  # noqa: E402
from restrain_openrlhf.machine import flash_attention  # noqa: E402
from restrain_openrlhf.records.metrics import StepRow  # noqa: E402
from tests.conftest import ROOT  # noqa: E402


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


def without_scale(query, key, value):
    return (query @ key.transpose(-1, -2)).softmax(-1) @ value


def with_a_gradient_that_is_cut(one, other):
    return one @ (other if other.dtype is torch.float64 else other.detach() + 0 * other)


@pytest.mark.parametrize(
    ("kernel", "shapes", "verdict"),
    [
        (torch.matmul, [(64, 64)] * 2, "pass"),
        (with_a_gradient_that_is_cut, [(64, 64)] * 2, "fail"),
        (lambda *each: scaled_dot_product_attention(*each, is_causal=True), [(1, 2, 32, 64)] * 3, "pass"),
        # In bf16 it does what another kernel does; in fp64 it is right.
        (
            lambda *each: (
                without_scale(*each)
                if each[0].dtype is torch.bfloat16
                else scaled_dot_product_attention(*each, is_causal=True)
            ),
            [(1, 2, 32, 64)] * 3,
            "fail",
        ),
    ],
    ids=["product", "product, a gradient cut", "attention", "attention, neither causal nor scaled"],
)
def test_a_kernels_error_is_that_of_its_result_and_of_every_gradient(kernel, shapes, verdict):
    error = kernel_error(kernel, kernel, torch.device("cpu"), *shapes)
    assert [outcome.verdict for outcome in judge_kernels({"kernel": error})] == [verdict]


def only_in_bf16(kernel, broken):
    """The device's kernel is broken, and the exact one in double precision is not."""
    return lambda *each, **named: (broken if each[0].dtype is torch.bfloat16 else kernel)(*each, **named)


def in_one_sequence(wrapped, _module, args, kwargs):
    """Packed rollouts that see each other."""
    query, key, value, bounds, *_ = args
    whole = bounds[[0, -1]]
    return wrapped(query, key, value, whole, whole, len(query), len(query), **kwargs)


PRODUCT, ATTENTION, PACKED = (f"kernel: {name}" for name in ("matrix product", "attention", "packed attention"))


@pytest.mark.parametrize(
    ("owner", "name", "broken", "lines"),
    [
        (torch, "matmul", only_in_bf16(torch.matmul, lambda one, other: one @ other * 1.05), [PRODUCT]),
        (
            torch.nn.functional,
            "scaled_dot_product_attention",
            # On the CPU what packs is made of the other.
            only_in_bf16(
                scaled_dot_product_attention,
                lambda *each, is_causal, **named: scaled_dot_product_attention(*each, is_causal=False, **named),
            ),
            [ATTENTION, PACKED],
        ),
        (
            torch.nn.functional,
            "scaled_dot_product_attention",
            # Query heads that read another group's keys.
            only_in_bf16(
                scaled_dot_product_attention,
                lambda query, key, value, **named: scaled_dot_product_attention(
                    query, key.flip(1), value.flip(1), **named
                ),
            ),
            [ATTENTION, PACKED],
        ),
        (varlen, "varlen_attn", wrapt.FunctionWrapper(varlen.varlen_attn, in_one_sequence), [PACKED]),
        (flash_attention, "CAUSAL", (-1, -1), [PACKED]),
    ],
    ids=["product", "attention, not causal", "attention, other keys", "packed, together", "packed, not causal"],
)
def test_each_kernels_line_fails_by_its_own_kernel(monkeypatch, owner, name, broken, lines):
    assert failures(judge_kernels(measure())) == []
    monkeypatch.setattr(owner, name, broken)
    assert failures(judge_kernels(measure())) == lines


def rows(*gaps, kl=0.1, factor=1.002):
    """Of each gap a step, on prompts of its own; None where a step has none."""
    found = [{} if gap is None else {"restrain/logprob_gap_relative": gap} for gap in gaps]
    common = {"restrain/kl": kl, "restrain/token_mult_prob_error": factor}
    return [
        StepRow(step, {**numbers, **common}, {"prompts_digest": f"{step}"}) for step, numbers in enumerate(found, 1)
    ]


@pytest.mark.parametrize("broken", [(0.01, 0.2, 0.01), (0.01, None, 0.01), (0.01, math.nan), ()])
def test_weights_that_did_not_arrive_fail(broken):
    assert failures([judge_syncs(rows(*broken))]) == ["weights in vLLM"]
    assert failures([judge_syncs(rows(0.01, 0.02, 0.015))]) == []


@pytest.mark.parametrize("factor", [1.11, math.nan, math.inf])
def test_probabilities_too_far_apart_fail_however_small_their_logarithms_gap_is_to_their_size(factor):
    assert failures([judge_syncs(rows(0.01, 0.02, factor=factor))]) == ["weights in vLLM"]
    assert failures([judge_syncs(rows(0.01, 0.02, factor=1.09))]) == []


def test_a_policy_whose_numbers_are_not_finite_fails_and_they_are_named():
    outcome = judge_syncs([*rows(0.01), *rows(0.01, kl=math.nan)])
    assert (outcome.verdict, "in some of 2 steps: restrain/kl" in outcome.found) == ("fail", True)


def test_an_update_of_which_a_part_arrived_fails():
    def of(share):
        return [StepRow(1, {**rows(0.01)[0].numbers, "restrain/update_arrived": share}, {})]

    assert failures([judge_syncs(of(0.5))]) == ["weights in vLLM"]
    assert failures([judge_syncs(of(0.97))]) == []
    assert failures([judge_syncs([*of(0.97), *of(math.nan)])]) == ["weights in vLLM"]


def test_a_single_weight_with_other_bits_fails_and_is_named():
    loaded = {"norm": "aa", "head": "bb"}
    assert judge_digests([loaded, loaded], loaded).verdict == "pass"
    other = judge_digests([loaded, {"norm": "aa", "head": "cc"}], loaded)
    assert (other.verdict, other.numbers["other"]) == ("fail", 1)
    assert other.found.endswith("; not head")
    missing = judge_digests([{"norm": "aa"}], loaded)
    assert missing.found.endswith("; not head")
    beyond = judge_digests([{**loaded, "old head": "dd"}], loaded)
    assert beyond.found.endswith("; not old head")
    nothing = [judge_digests([], loaded), judge_digests([{}], {})]
    assert failures([other, missing, beyond, *nothing]) == ["weights in vLLM, bits"] * 5


def test_gaps_of_a_policy_that_did_not_move_show_nothing():
    assert "did not move" in judge_syncs(rows(0.01, 0.01, kl=1e-6)).found


def test_a_run_that_was_killed_must_go_on_from_its_checkpoint():
    whole = rows(*[0.01] * STEPS)
    fine = (whole[:3], whole, True, True)
    assert judge_resume(*fine).verdict == "pass"
    broken = [
        (whole[:3], whole[:-1], True, True),
        (whole[:3], [*whole, whole[-1]], True, True),
        (whole[:3], whole, False, True),
        (rows(0.03, 0.01, 0.01), whole, True, True),
        (rows(0.01, 0.03, 0.01), whole, True, True),
        (whole[:3], whole, True, False),
    ]
    assert len(failures([judge_resume(*each) for each in broken])) == len(broken)


def with_prompts_of(step, row):
    return replace(row, votes={"prompts_digest": f"{step}"})


@pytest.mark.parametrize(
    ("again", "said"),
    [
        ([1, 2, 1, 2, 3], "same prompts"),
        ([1, 2, 4, 3, 5], "step 3 was taken again with other prompts"),
        ([1, 2, 3, 3, 4], "same prompts"),
    ],
)
def test_a_resumed_run_that_lost_its_place_among_the_prompts_fails(again, said):
    whole = rows(*[0.01] * STEPS)
    resumed = [with_prompts_of(step, row) for step, row in zip(again, whole, strict=True)]
    outcome = judge_resume(whole[:3], resumed, True, True)
    assert (outcome.verdict, said in outcome.found) == ("fail", True)


@pytest.mark.parametrize(("kl", "verdict"), [(0.1, "pass"), (0.05, "pass"), (1e-6, "fail"), (math.nan, "fail")])
def test_a_resumed_run_that_went_on_with_the_base_models_weights_fails(kl, verdict):
    before, resumed = rows(*[0.01] * 3), rows(*[0.01] * STEPS)
    resumed[2] = replace(resumed[2], numbers={**resumed[2].numbers, "restrain/kl": kl})
    assert judge_resume(before, resumed, True, True).verdict == verdict


def test_a_policy_that_had_not_moved_before_it_was_killed_says_nothing_of_its_weights():
    before, resumed = rows(*[0.01] * 3, kl=1e-5), rows(*[0.01] * STEPS, kl=1e-7)
    assert judge_resume(before, [*before[:2], *resumed[2:]], True, True).verdict == "pass"


def test_an_adaptation_without_its_votes_fails():
    votes = [{"vote_share": 0.5}] * ADAPTED_PROBLEMS
    fine = {"steps": ADAPTED_STEPS, "chosen_step": ADAPTED_STEPS}
    assert judge_adaptation(votes, fine).verdict == "pass"
    broken = [(votes[1:], fine), ([*votes[1:], {"vote_share": 0}], fine), (votes, {**fine, "steps": ADAPTED_STEPS - 1})]
    assert len(failures([judge_adaptation(*each) for each in broken])) == 3


def test_an_adaptation_whose_votes_are_the_base_models_fails():
    outcome = judge_adaptation([{"vote_share": 0.5}] * ADAPTED_PROBLEMS, {"steps": ADAPTED_STEPS, "chosen_step": 0})
    assert (outcome.verdict, "by the base model" in outcome.found) == ("fail", True)


def test_memory_is_extrapolated_along_the_line_through_two_measurements():
    """Apart from layers 5; each holds 4 and takes 5 at the peak: at 10 layers 45 and 55."""
    few, more = (TrainingStep(layers, 10, 5 + 4 * layers, 5 + 5 * layers) for layers in (2, 4))
    assert extrapolate(few, more) == TrainingStep(10, 10, 45, 55)
    assert extrapolate(replace(few, whole=4), more).peak == more.peak


def test_an_estimate_is_put_right_by_the_measurement():
    """Alone 100 measured for 80 estimated: the 20 left out are there on each of the layout's GPUs: 50 + 20."""
    few, more = TrainingStep(2, 10, 10, 20), TrainingStep(4, 10, 20, 40)
    whole = extrapolate(few, more)
    assert whole.peak == 100
    too_low = {"alone": 80, "layout": 50}
    assert judge_estimate(whole, **too_low, gpu_bytes=70).verdict == "pass"
    assert judge_estimate(whole, **too_low, gpu_bytes=69).verdict == "fail"
    assert judge_estimate(whole, **too_low, gpu_bytes=70).numbers["ratio"] == 1.25
    assert "measured 1.25 of the estimate" in judge_estimate(whole, **too_low, gpu_bytes=None).found
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
