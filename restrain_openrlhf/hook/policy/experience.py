"""Wraps RemoteExperienceMaker.make_experience_batch: votes counted, host advantages removed, gap, update measured."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch

from restrain_openrlhf.answers.votes import missing_warning
from restrain_openrlhf.errors import PolicyMismatchError
from restrain_openrlhf.hook.install.environment import config_here
from restrain_openrlhf.hook.rollout.group_columns import ScoredGroup, take_scored, take_votes, unread
from restrain_openrlhf.scoring.vote_statistics import StepVotes

# Below it, the share says more of rounding than of the update.
MOVE_ABOVE_ROUNDING = 2.0
UPDATE_ARRIVED = "restrain/update_arrived"


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

    Each experience has `rollout_log_probs`, which the hooked rollout actors always bring, `action_log_probs` and
    `action_mask`, (B, T-1).
    """
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


@dataclass(frozen=True)
class StepRecord:
    """What is known of a step's rollouts before it is trained on.

    `rounding` is the least of the steps so far: the first is a new adapter's or an unmoved policy's, or the first after
    a resume. `rollout_gaps` has a gap for each trained rollout where rollouts are kept.
    """

    votes: StepVotes
    scored: Sequence[ScoredGroup]
    gap: LogProbGap
    rounding: float
    update_arrived: float | None
    rollout_gaps: Sequence[float | None]
    has_warned: bool

    def scalars(self) -> dict[str, float]:
        """Its numbers by the names they are logged under."""
        named = {f"restrain/{name}": value for name, value in {**self.votes.scalars(), **self.gap.scalars()}.items()}
        return named if self.update_arrived is None else {**named, UPDATE_ARRIVED: self.update_arrived}


# Of each of the host's experience makers.
LAST_STEP: WeakKeyDictionary[object, StepRecord] = WeakKeyDictionary()


def make_experience_batch(
    wrapped: Callable[..., list[Any]], maker: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    """Check the groups, let the host make its experience, then remove the host's own advantages.

    A rollout's own pair came with it (hook/agent.py). Advantages become None so that a policy actor without the hook
    fails at once: it must never train on them.
    """
    samples = args[0] if args else kwargs["rollout_samples"]
    n = maker.args.rollout.n_samples_per_prompt
    votes, scored = take_votes(samples, n), take_scored(samples, n)
    before = LAST_STEP.get(maker)
    # Once a run, for later steps have `restrain/missing_share_of_voters`; examples are there where rollouts are kept.
    share, kind = votes.missing_share_of_voters, config_here().answers
    warning = missing_warning(share, unread(scored), "this step's rollouts", kind)
    has_warned = before is not None and before.has_warned
    if warning and not has_warned:
        logging.getLogger(__name__).warning("%s", warning)
    experiences = wrapped(*args, **kwargs)
    rounding = min(before.rounding if before is not None else math.inf, rounding_of(experiences))
    LAST_STEP[maker] = step = StepRecord(
        votes=votes,
        scored=scored,
        gap=logprob_gap(experiences),
        rounding=rounding,
        update_arrived=update_arrived(experiences, rounding),
        rollout_gaps=rollout_gaps(experiences) if scored else [],
        has_warned=has_warned or bool(warning),
    )
    if not maker.args.train.async_enable:
        # The asynchronous trainer's rollouts may be of earlier weights, by design.
        refuse_mismatch(step.gap, config_here().logprob_gap_limit)
    for experience in experiences:
        experience.advantages = None
    return experiences
