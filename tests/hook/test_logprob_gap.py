"""The gap between the log-probabilities that rollouts came with and the policy's, worked out by hand."""

import math
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="needs the training stack (make install)")
pytest.importorskip("openrlhf", reason="needs the training stack (make install)")
pytestmark = pytest.mark.host

from restrain_openrlhf.machine.devices import detect  # noqa: E402

detect().install()

from restrain_openrlhf.errors import PolicyMismatchError  # noqa: E402
from restrain_openrlhf.hook.policy.experience import (  # noqa: E402
    LAST_STEP,
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
        action_mask=torch.tensor(mask),
    )


def test_it_is_the_mean_over_response_tokens_of_all_micro_batches():
    one = experience([[9.0, -1.0, -2.0]], [[0.0, -1.5, -2.0]], [[0, 1, 1]])
    other = experience([[-1.0, 5.0], [-3.0, -1.0]], [[-1.0, 0.0], [-2.0, -1.0]], [[1, 0], [1, 1]])
    gap = logprob_gap([one, other])
    assert gap.mean == pytest.approx((0.5 + 0 + 0 + 1 + 0) / 5)
    assert gap.relative == pytest.approx((0.5 + 1) / (1 + 2 + 1 + 3 + 1))


def test_it_does_not_depend_on_micro_batching():
    rollout, policy = [[-1.0, -2.0], [-3.0, 0.0]], [[-1.1, -2.2], [-3.4, 0.0]]
    mask = [[1, 1], [1, 0]]
    rows = logprob_gap([experience([rollout[i]], [policy[i]], [mask[i]]) for i in range(2)])
    whole = logprob_gap([experience(rollout, policy, mask)])
    assert (rows.mean, rows.relative) == pytest.approx((whole.mean, whole.relative))


def test_it_is_taken_in_full_precision():
    half = experience([[-1.0]], [[-1.25]], [[1]])
    half.action_log_probs = half.action_log_probs.bfloat16()
    assert logprob_gap([half]) == LogProbGap(0.25, 0.25)


def test_a_policy_that_is_sure_of_every_token_has_no_gap():
    assert logprob_gap([experience([[0.0, 0.0]], [[0.0, 0.0]], [[1, 1]])]) == LogProbGap(0.0, 0.0)


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
    rounding = rounding_of([of_an_update(1.0, 0.0)])
    assert rounding == pytest.approx(0.02 * math.sqrt(2), rel=0.02)
    assert update_arrived([of_an_update(part, 0.5)] * 2, rounding) == pytest.approx(part, abs=0.02)


def test_a_move_as_small_as_rounding_has_no_share_nor_has_one_without_a_reference_policy():
    rounding = rounding_of([of_an_update(1.0, 0.0)])
    assert update_arrived([of_an_update(0.0, 0.01)], rounding) is None, "it would be called a half"
    assert update_arrived([of_an_update(1.0, 0.0)], 0.0) == pytest.approx(0.5, abs=0.02), "as here, of no update at all"
    assert update_arrived([of_an_update(1.0, 0.5, reference=False)], rounding) is None


@pytest.mark.parametrize("relative", [0.21, float("nan"), float("inf")])
def test_a_gap_beyond_the_limit_stops_the_run(relative):
    with pytest.raises(PolicyMismatchError, match=r"differ from the policy's by 0\.05 nats .*_limit is 20%\."):
        refuse_mismatch(LogProbGap(0.05, relative), 0.2)


def test_rounding_passes_and_the_limit_can_be_taken_away():
    refuse_mismatch(LogProbGap(0.02, 0.2), 0.2)
    refuse_mismatch(LogProbGap(5.0, 3.0), None)


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
    with pytest.raises(PolicyMismatchError, match="vLLM does not have the policy's weights"):
        make()
    assert LAST_STEP[maker].gap.relative == pytest.approx(1 - SURE / math.log(0.5))


@pytest.mark.parametrize(
    "settings",
    [{"logprob_gap_limit": None}, {"logprob_gap_limit": 0.7}, {"flags": {"train.async_enable": True}}],
    ids=["no limit", "a higher limit", "the asynchronous trainer"],
)
def test_it_is_trained_on_where_that_is_expected(hooked, settings):
    maker, make = step_of_a_stale_vllm(hooked, **settings)
    assert len(make()) == 1
    assert LAST_STEP[maker].gap.relative > 0.4
