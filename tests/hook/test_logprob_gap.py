"""The gap between the log-probabilities that rollouts came with and the policy's, worked out by hand."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="needs the training stack (make install)")
pytestmark = pytest.mark.host

from restrain_openrlhf.errors import HookNotActiveError, PolicyMismatchError  # noqa: E402
from restrain_openrlhf.hook.logprob_gap import logprob_gap, refuse_mismatch  # noqa: E402


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
    assert logprob_gap([one, other]) == pytest.approx((0.5 + 0 + 0 + 1 + 0) / 5)


def test_it_does_not_depend_on_micro_batching():
    rollout, policy = [[-1.0, -2.0], [-3.0, 0.0]], [[-1.1, -2.2], [-3.4, 0.0]]
    mask = [[1, 1], [1, 0]]
    rows = [experience([rollout[i]], [policy[i]], [mask[i]]) for i in range(2)]
    assert logprob_gap(rows) == pytest.approx(logprob_gap([experience(rollout, policy, mask)]))


def test_it_is_taken_in_full_precision():
    half = experience([[-1.0]], [[-1.25]], [[1]])
    half.action_log_probs = half.action_log_probs.bfloat16()
    assert logprob_gap([half]) == 0.25


def test_rollouts_without_log_probabilities_are_of_an_actor_that_is_not_hooked():
    with pytest.raises(HookNotActiveError, match="rollout actors that drew them are not hooked"):
        logprob_gap([experience(None, [[0.0]], [[1]])])


@pytest.mark.parametrize("gap", [0.11, float("nan"), float("inf")])
def test_a_gap_beyond_the_limit_stops_the_run(gap):
    with pytest.raises(PolicyMismatchError, match=r"differ from the policy's by .* logprob_gap_limit is 0\.1\."):
        refuse_mismatch(gap, 0.1)


def test_rounding_passes_and_the_limit_can_be_taken_away():
    refuse_mismatch(0.1, 0.1)
    refuse_mismatch(5.0, None)
