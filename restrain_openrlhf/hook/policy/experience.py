"""What a step's rollouts say before they are trained on: their votes, and how far vLLM's policy is from ours."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch

from restrain_openrlhf.answers.votes import missing_warning
from restrain_openrlhf.errors import PolicyMismatchError
from restrain_openrlhf.hook.install.environment import config_here
from restrain_openrlhf.hook.rollout.group_columns import ScoredGroup, take_agent_logs, take_scored, take_votes, unread
from restrain_openrlhf.records.metrics import UPDATE_ARRIVED
from restrain_openrlhf.scoring.vote_statistics import StepVotes

# The stricter of two limits of `token_mult_prob_error` in NeMo-RL's tests.
PROB_ERROR_EXPECTED = 1.05
# If a move is smaller than this times the rounding, the share mostly measures rounding.
MOVE_ABOVE_ROUNDING = 2.0


@dataclass(frozen=True)
class LogProbGap:
    """`mean` of |log p_vLLM − log π| over response tokens, in nats; `relative` to the mean of |log p_vLLM|.

    An error of δ in a logit moves the log-probability of a token of probability p by (1 − p) δ, and |log p| is about
    1 − p: so the relative gap is about the logits' error, however sure the policy is of its tokens.

    With r = π / p_vLLM of a token, `mismatch_kl` (prime-rl's name) is the mean of r − log r − 1, which estimates
    KL(p_vLLM ‖ π) in nats, and `token_mult_prob_error` (NeMo-RL's name) is the mean of e^|log r|. They are 0 and 1
    where vLLM and the policy agree. `mean` is slime's train_rollout_logprob_abs_diff, taken per token.
    """

    mean: float
    relative: float
    mismatch_kl: float
    token_mult_prob_error: float

    def scalars(self) -> dict[str, float]:
        return {
            "logprob_gap": self.mean,
            "logprob_gap_relative": self.relative,
            "mismatch_kl": self.mismatch_kl,
            "token_mult_prob_error": self.token_mult_prob_error,
        }


@dataclass(frozen=True)
class TokenLogProbs:
    """The log-probabilities of a step's response tokens by vLLM, the policy and the reference policy, each (tokens,).

    `base` is None if there is no reference policy.
    """

    rollout: torch.Tensor
    policy: torch.Tensor
    base: torch.Tensor | None

    @classmethod
    def of(cls, experiences: Sequence[Any]) -> "TokenLogProbs":
        """From the host's experiences, however they are split into micro-batches.

        An experience has `action_mask` and the log-probabilities, all (B, T-1). Those of vLLM (`rollout_log_probs`) are
        always there, because the hooked rollout actors ask for them.
        """
        places = [each.action_mask.flatten().nonzero().squeeze(1) for each in experiences]

        def row(name: str) -> torch.Tensor:
            pairs = zip(experiences, places, strict=True)
            return torch.cat([getattr(each, name).take(place).float() for each, place in pairs])

        has_base = all(each.base_action_log_probs is not None for each in experiences)
        return cls(
            row("rollout_log_probs"), row("action_log_probs"), row("base_action_log_probs") if has_base else None
        )


@dataclass(frozen=True)
class StepRecord:
    """What is known of a step's rollouts before the step is trained on.

    `rounding` is the least of the steps so far in this process; in the first of them vLLM and the policy have the same
    weights. `rollout_gaps` has a gap for each trained rollout if rollouts are kept. `warned` names the warnings that
    are already in the run's log, each of which is given once. `agent` has the means of what the user's own agent logs.
    """

    votes: StepVotes
    scored: Sequence[ScoredGroup]
    gap: LogProbGap
    rounding: float
    update_arrived: float | None
    rollout_gaps: Sequence[float | None]
    warned: frozenset[str]
    agent: Mapping[str, float] = field(default_factory=dict)

    def scalars(self) -> dict[str, float]:
        named = {f"restrain/{name}": value for name, value in {**self.votes.scalars(), **self.gap.scalars()}.items()}
        arrived = {} if self.update_arrived is None else {UPDATE_ARRIVED: self.update_arrived}
        return {**named, **self.agent, **arrived}


# The record of the last step, for each of the host's experience makers.
LAST_STEP: WeakKeyDictionary[object, StepRecord] = WeakKeyDictionary()


def make_experience_batch(
    wrapped: Callable[..., list[Any]], maker: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    """Check the groups, let the host make its experience, then remove the host's own advantages.

    Each rollout has brought its own pair (hook/agent.py). The host's advantages become None, so that a policy actor
    without the hook fails at once and never trains on them.
    """
    samples = args[0] if args else kwargs["rollout_samples"]
    n = maker.args.rollout.n_samples_per_prompt
    config = config_here()
    votes, scored, agent = take_votes(samples, n, config.answers), take_scored(samples, n), take_agent_logs(samples)
    experiences = wrapped(*args, **kwargs)
    record = LAST_STEP[maker] = _record(maker, experiences, votes, scored if config.keeps_rollouts else [], agent)
    if _has_same_weights(maker):
        refuse_mismatch(record.gap, config.logprob_gap_limit)
    for experience in experiences:
        # Only a critic reads returns (trainer/ray/ppo_critic.py), and with group_norm there is none.
        experience.advantages = experience.returns = None
    return experiences


def _has_same_weights(maker: Any) -> bool:
    """Whether vLLM drew with the policy's weights. Those of the asynchronous trainer may be earlier ones, by design."""
    return not maker.args.train.async_enable


def _record(
    maker: Any,
    experiences: Sequence[Any],
    votes: StepVotes,
    scored: Sequence[ScoredGroup],
    agent: Mapping[str, float],
) -> StepRecord:
    """The record of a step whose experience the host has made. Warnings that are new are logged."""
    tokens, before = TokenLogProbs.of(experiences), LAST_STEP.get(maker)
    rounding = min(before.rounding if before is not None else math.inf, rounding_of(tokens))
    gap = logprob_gap(tokens)
    warnings = _warnings(votes, scored, gap if _has_same_weights(maker) else None)
    return StepRecord(
        votes=votes,
        scored=scored,
        gap=gap,
        rounding=rounding,
        update_arrived=update_arrived(tokens, rounding),
        rollout_gaps=rollout_gaps(experiences) if scored else [],
        warned=warn_once(warnings, before.warned if before is not None else frozenset()),
        agent=agent,
    )


def _warnings(votes: StepVotes, scored: Sequence[ScoredGroup], gap: LogProbGap | None) -> Mapping[str, str | None]:
    """What is wrong with the step, by the names of warnings. Only where rollouts are kept are there examples."""
    rollouts, kind = "this step's rollouts", config_here().answers
    return {
        "answers": missing_warning(votes.missing_share_of_voters, unread(scored), rollouts, kind),
        "mismatch": None if gap is None else mismatch_warning(gap),
    }


def warn_once(warnings: Mapping[str, str | None], warned: frozenset[str]) -> frozenset[str]:
    """Log the warnings that the run's log does not have yet, and return the names of all that it has now."""
    new = {name: text for name, text in warnings.items() if text and name not in warned}
    for text in new.values():
        logging.getLogger(__name__).warning("%s", text)
    return warned | new.keys()


def logprob_gap(tokens: TokenLogProbs) -> LogProbGap:
    rollout, policy = tokens.rollout, tokens.policy
    total, size, count = float((rollout - policy).abs().sum()), float(rollout.abs().sum()), max(len(rollout), 1)
    log_ratio = (policy - rollout).double()  # e^89 is no fp32 number, and e^d - d - 1 of a small d is all rounding
    return LogProbGap(
        mean=total / count,
        relative=total / size if total else 0.0,
        mismatch_kl=float((log_ratio.expm1() - log_ratio).sum()) / count,
        token_mult_prob_error=1 + float(log_ratio.abs().expm1().sum()) / count,
    )


def rounding_of(tokens: TokenLogProbs) -> float:
    """The root mean square of log p_vLLM − log π over response tokens, in nats; 0 without tokens."""
    return _rms(tokens.rollout - tokens.policy)


def update_arrived(tokens: TokenLogProbs, rounding: float) -> float | None:
    """The share of the policy's update that vLLM has: 1 where it has all of it, 0 where it still has the base model.

    It is <v − b, p − b> / |p − b|² over the log-probabilities of response tokens: v of vLLM, p of the policy and b of
    the reference policy. The rounding of b is part of both differences, and draws the share towards 1/2 if the move p −
    b is small. So the result is None if the move's root mean square is below twice `rounding`, which is that of v −
    p while both have the same weights. It is also None without a reference policy.
    """
    if tokens.base is None:
        return None
    move = tokens.policy - tokens.base
    if not _rms(move) > MOVE_ABOVE_ROUNDING * rounding:
        return None
    return float((tokens.rollout - tokens.base) @ move / (move @ move))


def _rms(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt()) if len(values) else 0.0


def rollout_gaps(experiences: Sequence[Any]) -> list[float | None]:
    """Each rollout's mean of |log p_vLLM − log π| over its tokens, in nats, in the order of drawing.

    It is None for a rollout without tokens, and where the mean is not finite. An experience's `index` holds the places
    of its rollouts (trainer/ppo_utils/experience_maker.py, split_rollout_samples).
    """
    found: dict[int, float] = {}
    for experience in experiences:
        mask = experience.action_mask.bool()
        apart = (experience.rollout_log_probs.float() - experience.action_log_probs.float()).abs()
        means = torch.where(mask, apart, 0.0).sum(-1) / mask.sum(-1)
        found.update(zip(experience.index, means.tolist(), strict=True))
    return [gap if math.isfinite(gap) else None for _, gap in sorted(found.items())]


def refuse_mismatch(gap: LogProbGap, limit: float | None) -> None:
    """Raises PolicyMismatchError if the relative gap is above the limit, so another policy drew the rollouts."""
    if limit is not None and not gap.relative <= limit:
        raise PolicyMismatchError(
            f"vLLM's log-probabilities of the sampled tokens differ from the policy's by {gap.mean:.3g} nats a token, "
            f"{gap.relative:.0%} of their mean size; logprob_gap_limit is {limit:.0%}. Rounding does not explain "
            "that: vLLM has other weights than the policy, or computes another model. The run stopped before it "
            "trained on this step, and the checkpoints are unchanged. Compare vLLM's and transformers' versions and "
            "numeric types on all nodes. If such a gap is expected (quantised rollouts), raise logprob_gap_limit, or "
            "set it to null."
        )


def mismatch_warning(gap: LogProbGap) -> str | None:
    """A warning for a step whose probabilities differ by more than rounding usually explains; None otherwise."""
    if gap.token_mult_prob_error <= PROB_ERROR_EXPECTED:
        return None
    return (
        "In this step vLLM's probabilities of the sampled tokens differ from the policy's by a factor of "
        f"{gap.token_mult_prob_error:.3g} on average; rounding usually stays below {PROB_ERROR_EXPECTED:g}. Watch "
        "restrain/token_mult_prob_error and restrain/mismatch_kl. If they rise, compare vLLM's and transformers' "
        "versions and numeric types, and run `restrain gpu-check --only training`."
    )
