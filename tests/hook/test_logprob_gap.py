"""The gap between the log-probabilities that rollouts came with and the policy's, worked out by hand."""

import math
from types import SimpleNamespace

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack (make install)")

import torch

from restrain_openrlhf.errors import PolicyMismatchError
from restrain_openrlhf.hook.policy.experience import (
    LAST_STEP,
    GapSums,
    LogProbGap,
    logprob_gap,
    refuse_mismatch,
    rounding_of,
    update_arrived,
)


def experience(rollout, policy, mask):
    """One micro-batch of the host's; rows are rollouts, columns all tokens but the first."""
    return SimpleNamespace(
        rollout_log_probs=None if rollout is None else torch.tensor(rollout),
        action_log_probs=torch.tensor(policy),
        base_action_log_probs=None,
        action_mask=torch.tensor(mask),
    )


def test_it_is_the_mean_over_response_tokens_of_all_micro_batches():
    one = experience([[9.0, -1.0, -2.0]], [[0.0, -1.5, -2.0]], [[0, 1, 1]])
    other = experience([[-1.0, 5.0], [-3.0, -1.0]], [[-1.0, 0.0], [-2.0, -1.0]], [[1, 0], [1, 1]])
    gap = logprob_gap(GapSums.of([one, other]))
    assert gap.logprob_gap == pytest.approx((0.5 + 0 + 0 + 1 + 0) / 5)
    assert gap.logprob_gap_relative == pytest.approx((0.5 + 1) / (1 + 2 + 1 + 3 + 1))


def test_the_peers_numbers_are_as_worked_by_hand():
    """Three tokens of probability 1/2 by vLLM, which are 1/8, 1/2 and 1 by the policy: r is 1/4, 1 and 2.

    r - log r - 1 is 2 log 2 - 3/4, 0 and 1 - log 2, of which the sum is log 2 + 1/4; e^|log r| is 4, 1 and 2.
    """
    half, eighth, one = math.log(1 / 2), math.log(1 / 8), 0.0
    rows = experience([[half, half], [half, 9.0]], [[eighth, half], [one, 0.0]], [[1, 1], [1, 0]])
    gap = logprob_gap(GapSums.of([rows]))
    assert gap.mismatch_kl == pytest.approx((math.log(2) + 1 / 4) / 3)
    assert gap.token_mult_prob_error == pytest.approx(7 / 3)


def test_a_mismatch_is_a_number_whether_tiny_or_huge():
    """By d²/2 of a small d; e^100 is beyond fp32."""
    tiny = logprob_gap(GapSums.of([experience([[-1.0]], [[-1.0 - 2**-12]], [[1]])]))
    assert tiny.mismatch_kl == pytest.approx(2**-25, rel=1e-3)
    huge = logprob_gap(GapSums.of([experience([[-101.0]], [[-1.0]], [[1]])]))
    assert huge.mismatch_kl == pytest.approx(math.exp(100), rel=1e-5)
    assert huge.token_mult_prob_error == pytest.approx(math.exp(100), rel=1e-5)


def of_an_update(arrived, move, reference=True):
    """Each of vLLM, the policy and the reference policy rounds in its own way, by 0.02 nats; vLLM has a part of the
    policy's move."""
    torch.manual_seed(0)
    way, *rounding = torch.randn(4, 50, 400)
    vllm, policy, base = (part * move * way + 0.02 * each for part, each in zip((arrived, 1, 0), rounding, strict=True))
    mask = torch.ones(50, 400)
    mask[:, ::7] = 0
    return SimpleNamespace(
        rollout_log_probs=torch.where(mask.bool(), vllm, 99.0),
        action_log_probs=policy,
        base_action_log_probs=base if reference else None,
        action_mask=mask,
    )


@pytest.mark.parametrize("part", [0.0, 0.2, 0.7, 1.0])
def test_the_share_of_an_update_that_arrived_is_found_where_it_is_above_rounding(part):
    rounding = rounding_of(GapSums.of([of_an_update(1.0, 0.0)]))
    assert rounding == pytest.approx(0.02 * math.sqrt(2), rel=0.02)
    assert update_arrived(GapSums.of([of_an_update(part, 0.5)] * 2), rounding) == pytest.approx(part, abs=0.02)


def test_a_move_as_small_as_rounding_has_no_share_nor_has_one_without_a_reference_policy():
    rounding = rounding_of(GapSums.of([of_an_update(1.0, 0.0)]))
    assert update_arrived(GapSums.of([of_an_update(0.0, 0.01)]), rounding) is None, "it would be called a half"
    assert update_arrived(GapSums.of([of_an_update(1.0, 0.0)]), 0.0) == pytest.approx(0.5, abs=0.02), (
        "as here, of no update at all"
    )
    assert update_arrived(GapSums.of([of_an_update(1.0, 0.5, reference=False)]), rounding) is None


def gap_of(mean, relative):
    return LogProbGap(mean, relative, mismatch_kl=0.0, token_mult_prob_error=1.0)


@pytest.mark.parametrize("relative", [0.21, float("nan"), float("inf")])
def test_a_gap_beyond_the_limit_stops_the_run(relative):
    with pytest.raises(PolicyMismatchError, match=r"differ from the policy's by 0\.05 nats .*_limit is 20%\."):
        refuse_mismatch(gap_of(0.05, relative), 0.2)


def test_rounding_passes_and_the_limit_can_be_taken_away():
    refuse_mismatch(gap_of(0.02, 0.2), 0.2)
    refuse_mismatch(gap_of(5.0, 3.0), None)


SCRIPT = {"1+1=": [r"\boxed{1}", r"\boxed{2}", r"\boxed{2}"]}
SURE = math.log(0.8)


def step_of_a_stale_vllm(hooked, **settings):
    """vLLM writes each digit with probability .5; the policy would with .8. The host's own classes make the step."""
    from tests.hook.in_process import HALF, Models, drawn_by_the_host, host_arguments, maker_of

    class Trained(Models):
        @staticmethod
        def _log_probs(sequences):
            return Models._log_probs(sequences) * SURE / HALF

    flags = settings.pop("flags", {})
    hooked({"name": "ttrl"}, **settings)
    arguments = host_arguments(1, 3, **flags)
    maker = maker_of(arguments, Trained())
    return maker, lambda: maker.make_experience_batch(drawn_by_the_host(SCRIPT, [""], arguments))


def test_a_step_whose_rollouts_are_another_policys_is_not_trained_on(hooked):
    maker, make = step_of_a_stale_vllm(hooked)
    with pytest.raises(PolicyMismatchError, match="vLLM has other weights than the policy"):
        make()
    assert LAST_STEP[maker].gap.logprob_gap_relative == pytest.approx(1 - SURE / math.log(0.5))


@pytest.mark.parametrize(
    "settings",
    [{"logprob_gap_limit": None}, {"logprob_gap_limit": 0.7}, {"flags": {"train.async_enable": True}}],
    ids=["no limit", "a higher limit", "the asynchronous trainer"],
)
def test_it_is_trained_on_where_that_is_expected(hooked, settings):
    maker, make = step_of_a_stale_vllm(hooked, **settings)
    assert len(make()) == 1
    assert LAST_STEP[maker].gap.logprob_gap_relative > 0.4


def test_probabilities_further_apart_than_rounding_are_warned_of_once(hooked, caplog):
    """The digit, one token of ten, has 1/2 by vLLM and 4/5 by the policy: (9 + 8/5) / 10."""
    _, make = step_of_a_stale_vllm(hooked, logprob_gap_limit=None)
    make()
    make()
    (warning,) = [each.getMessage() for each in caplog.records if "by a factor of" in each.getMessage()]
    assert "by a factor of 1.06 on average; rounding usually stays below 1.05" in warning
