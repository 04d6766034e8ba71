"""Wraps RemoteExperienceMaker.make_experience_batch: votes counted, host advantages removed, gap, update measured."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from restrain_openrlhf.errors import HookNotActiveError, PolicyMismatchError
from restrain_openrlhf.hook.environment import config_here
from restrain_openrlhf.hook.group_columns import take_votes
from restrain_openrlhf.hook.scored_groups import take_scored, unread
from restrain_openrlhf.vote_statistics import missing_warning, step_votes

# Below it, the share says more of rounding than of the update.
MOVE_ABOVE_ROUNDING = 2.0


@dataclass(frozen=True)
class LogProbGap:
    """`mean` of |log p_vLLM − log π| over response tokens, in nats; `relative` to the mean of |log p_vLLM|.

    An error of δ in a logit moves the log-probability of a token of probability p by (1 − p) δ, and |log p| is about
    1 − p: so the relative gap is about the logits' error, however sure the policy is of its tokens.
    """

    mean: float
    relative: float

    def scalars(self) -> dict[str, float]:
        """Both, by the names they are logged under."""
        return {"logprob_gap": self.mean, "logprob_gap_relative": self.relative}


def logprob_gap(experiences: Sequence[Any]) -> LogProbGap:
    """The gap over all response tokens of the host's experiences, whatever their micro-batches.

    Each experience has `rollout_log_probs`, `action_log_probs` and `action_mask`, (B, T-1). Raises HookNotActiveError
    where rollouts came without log-probabilities, which the hooked rollout actors always bring.
    """
    if any(experience.rollout_log_probs is None for experience in experiences):
        raise HookNotActiveError(
            "The rollouts carry no log-probabilities, so the rollout actors that drew them are not hooked."
        )
    rollout, policy = _of_tokens(experiences, "rollout_log_probs"), _of_tokens(experiences, "action_log_probs")
    total, size = float((rollout - policy).abs().sum()), float(rollout.abs().sum())
    return LogProbGap(mean=total / max(len(rollout), 1), relative=total / size if total else 0.0)


def rounding_of(experiences: Sequence[Any]) -> float:
    """The root mean square of log p_vLLM − log π over response tokens, in nats; 0 for none."""
    return _rms(_of_tokens(experiences, "rollout_log_probs") - _of_tokens(experiences, "action_log_probs"))


def update_arrived(experiences: Sequence[Any], rounding: float) -> float | None:
    """The share of the policy's update that is in its rollouts: 1 where vLLM has all of it, 0 where it has the base.

    That is <v − b, p − b> / |p − b|², over the response tokens' log-probabilities by vLLM (v), the policy (p) and the
    reference policy (b). The rounding of b is in both, and would draw the share of a small move to 1/2. So it is None
    where the move's root mean square is below twice `rounding`, that of v − p where nothing else was between them, and
    where there is no reference policy.
    """
    if any(experience.base_action_log_probs is None for experience in experiences):
        return None
    base = _of_tokens(experiences, "base_action_log_probs")
    move = _of_tokens(experiences, "action_log_probs") - base
    if not _rms(move) > MOVE_ABOVE_ROUNDING * rounding:
        return None
    return float((_of_tokens(experiences, "rollout_log_probs") - base) @ move / (move @ move))


def _of_tokens(experiences: Sequence[Any], name: str) -> torch.Tensor:
    """The named values (B, T-1) of all response tokens, in one row."""
    return torch.cat([getattr(each, name).float()[each.action_mask.bool()] for each in experiences])


def _rms(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt()) if len(values) else 0.0


def rollout_gaps(experiences: Sequence[Any]) -> list[float | None]:
    """Each rollout's mean of |log p_vLLM − log π| over its tokens, in nats, in the order the rollouts were drawn in.

    None for a rollout without tokens, and where the mean is no finite number. `index` of an experience has its
    rollouts' places (trainer/ppo_utils/experience_maker.py, split_rollout_samples).
    """
    found: dict[int, float] = {}
    for experience in experiences:
        mask = experience.action_mask.bool()
        apart = (experience.rollout_log_probs.float() - experience.action_log_probs.float()).abs()
        means = torch.where(mask, apart, 0.0).sum(-1) / mask.sum(-1)
        found.update(zip(experience.index, means.tolist(), strict=True))
    return [gap if math.isfinite(gap) else None for _, gap in sorted(found.items())]


def refuse_mismatch(gap: LogProbGap, limit: float | None) -> None:
    """Raises PolicyMismatchError where the relative gap is above the limit: the rollouts are not the policy's."""
    if limit is not None and not gap.relative <= limit:
        raise PolicyMismatchError(
            f"vLLM's log-probabilities of the sampled tokens differ from the policy's by {gap.mean:.3g} nats a token, "
            f"{gap.relative:.0%} of their mean size, and logprob_gap_limit is {limit:.0%}. That is more than rounding: "
            "vLLM does not have the policy's weights, or computes another model. The run stopped before it trained on "
            "this step; checkpoints are as they were. Compare vLLM's and transformers' versions and numeric types on "
            "all nodes. Where such a gap is expected (quantised rollouts), raise logprob_gap_limit, or set it to null."
        )


def _warn_of_missing(maker: Any) -> None:
    """Once a run: later steps have `restrain/missing_share_of_voters`. Examples are there where rollouts are kept."""
    share = maker.restrain_votes.missing_share_of_voters
    warning = missing_warning(share, unread(maker.restrain_scored), "this step's rollouts")
    if warning and not getattr(maker, "restrain_warned_of_missing", False):
        logging.getLogger(__name__).warning("%s", warning)
        maker.restrain_warned_of_missing = True


def make_experience_batch(
    wrapped: Callable[..., list[Any]], maker: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    """Check the groups, let the host make its experience, then remove the host's own advantages.

    A rollout's own pair came with it (hook/agent.py). Advantages become None so that a policy actor without the hook
    fails at once: it must never train on them.
    """
    samples = args[0] if args else kwargs["rollout_samples"]
    n = maker.args.rollout.n_samples_per_prompt
    maker.restrain_votes = step_votes(take_votes(samples, n))
    maker.restrain_scored = take_scored(samples, n)
    _warn_of_missing(maker)
    experiences = wrapped(*args, **kwargs)
    maker.restrain_logprob_gap = logprob_gap(experiences)
    # Of the steps so far: the first is a new adapter's or an unmoved policy's, or the first after a resume.
    maker.restrain_rounding = min(getattr(maker, "restrain_rounding", math.inf), rounding_of(experiences))
    maker.restrain_update_arrived = update_arrived(experiences, maker.restrain_rounding)
    maker.restrain_rollout_gaps = rollout_gaps(experiences) if maker.restrain_scored else []
    if not maker.args.train.async_enable:
        # The asynchronous trainer's rollouts may be of earlier weights, by design.
        refuse_mismatch(maker.restrain_logprob_gap, config_here().logprob_gap_limit)
    for experience in experiences:
        experience.advantages = None
    return experiences
