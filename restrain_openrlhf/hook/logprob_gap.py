"""The gap between vLLM's log-probabilities of the sampled tokens and the policy's: rounding, if weights are synced."""

from collections.abc import Sequence
from typing import Any

import torch

from restrain_openrlhf.errors import HookNotActiveError, PolicyMismatchError


def logprob_gap(experiences: Sequence[Any]) -> float:
    """Mean of |log p_vLLM - log pi| over all response tokens of the host's experiences, in nats.

    Each experience has `rollout_log_probs`, `action_log_probs` and `action_mask`, (B, T-1). Raises HookNotActiveError
    where rollouts came without log-probabilities, which the hooked rollout actors always bring.
    """
    if any(experience.rollout_log_probs is None for experience in experiences):
        raise HookNotActiveError(
            "The rollouts carry no log-probabilities, so the rollout actors that drew them are not hooked. Every Ray "
            "node needs restrain-openrlhf installed, and the run must be started with `restrain train` or "
            "`python -m restrain_openrlhf.hook.train_ppo_ray`."
        )
    gaps = torch.cat([_token_gaps(experience) for experience in experiences])
    return float(gaps.mean()) if len(gaps) else 0.0


def _token_gaps(experience: Any) -> torch.Tensor:
    gaps: torch.Tensor = (experience.rollout_log_probs.float() - experience.action_log_probs.float()).abs()
    return gaps[experience.action_mask.bool()]


def refuse_mismatch(gap: float, limit: float | None) -> None:
    """Raises PolicyMismatchError where the mean gap is above the limit: the rollouts are not the policy's."""
    if limit is not None and not gap <= limit:
        raise PolicyMismatchError(
            f"vLLM's log-probabilities of the sampled tokens differ from the policy's by {gap:.3f} nats a token on "
            f"average, and logprob_gap_limit is {limit:g}. That is more than rounding: vLLM does not have the policy's "
            "weights, or computes another model. The run stopped before it trained on this step; checkpoints are as "
            "they were. Compare vLLM's and transformers' versions and numeric types on all nodes. Where such a gap is "
            "expected (quantised rollouts), raise logprob_gap_limit, or set it to null."
        )
