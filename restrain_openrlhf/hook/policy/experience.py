"""Wraps RemoteExperienceMaker.make_experience_batch: votes counted, host advantages removed, gap, update measured."""

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
from restrain_openrlhf.scoring.vote_statistics import StepVotes

# The stricter of the limits that NeMo-RL's tests have of `token_mult_prob_error`.
PROB_ERROR_EXPECTED = 1.05
# Below it, the share says more of rounding than of the update.
MOVE_ABOVE_ROUNDING = 2.0
UPDATE_ARRIVED = "restrain/update_arrived"


@dataclass(frozen=True)
class LogProbGap:
    """`mean` of |log p_vLLM − log π| over response tokens, in nats; `relative` to the mean of |log p_vLLM|.

    An error of δ in a logit moves the log-probability of a token of probability p by (1 − p) δ, and |log p| is about
    1 − p: so the relative gap is about the logits' error, however sure the policy is of its tokens.

    With r = π / p_vLLM of a token, `mismatch_kl` is the mean of r − log r − 1, which estimates KL(p_vLLM ‖ π) in nats
    (prime-rl's name), and `token_mult_prob_error` the mean of e^|log r| (NeMo-RL's): 0 and 1 where the two agree.
    slime's train_rollout_logprob_abs_diff, taken per token, is `mean`.
    """

    mean: float
    relative: float
    mismatch_kl: float
    token_mult_prob_error: float

    def scalars(self) -> dict[str, float]:
        """All four, by the names they are logged under."""
        return {
            "logprob_gap": self.mean,
            "logprob_gap_relative": self.relative,
            "mismatch_kl": self.mismatch_kl,
            "token_mult_prob_error": self.token_mult_prob_error,
        }


@dataclass(frozen=True)
class TokenLogProbs:
    """The log-probabilities of a step's response tokens, each in one row: by vLLM, the policy and the reference policy.

    `base` is None where there is no reference policy.
    """

    rollout: torch.Tensor
    policy: torch.Tensor
    base: torch.Tensor | None

    @classmethod
    def of(cls, experiences: Sequence[Any]) -> "TokenLogProbs":
        """Of the host's experiences, whatever their micro-batches.

        Each has `rollout_log_probs`, which the hooked rollout actors always bring, the others' and `action_mask`, all
        (B, T-1).
        """
        places = [each.action_mask.flatten().nonzero().squeeze(1) for each in experiences]

        def row(name: str) -> torch.Tensor:
            pairs = zip(experiences, places, strict=True)
            return torch.cat([getattr(each, name).take(place).float() for each, place in pairs])

        has_base = all(each.base_action_log_probs is not None for each in experiences)
        return cls(
            row("rollout_log_probs"), row("action_log_probs"), row("base_action_log_probs") if has_base else None
        )


def logprob_gap(tokens: TokenLogProbs) -> LogProbGap:
    """The gap over all response tokens."""
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
    """The root mean square of log p_vLLM − log π over response tokens, in nats; 0 for none."""
    return _rms(tokens.rollout - tokens.policy)


def update_arrived(tokens: TokenLogProbs, rounding: float) -> float | None:
    """The share of the policy's update that is in its rollouts: 1 where vLLM has all of it, 0 where it has the base.

    That is <v − b, p − b> / |p − b|², over the response tokens' log-probabilities by vLLM (v), the policy (p) and the
    reference policy (b). The rounding of b is in both, and would draw the share of a small move to 1/2. So it is None
    where the move's root mean square is below twice `rounding`, that of v − p where nothing else was between them, and
    where there is no reference policy.
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
            f"{gap.relative:.0%} of their mean size; logprob_gap_limit is {limit:.0%}. Rounding does not explain "
            "that: vLLM has other weights than the policy, or computes another model. The run stopped before it "
            "trained on this step, and the checkpoints are unchanged. Compare vLLM's and transformers' versions and "
            "numeric types on all nodes. If such a gap is expected (quantised rollouts), raise logprob_gap_limit, or "
            "set it to null."
        )


def mismatch_warning(gap: LogProbGap) -> str | None:
    """What to tell of a step whose probabilities are further apart than rounding usually takes them; None otherwise."""
    if gap.token_mult_prob_error <= PROB_ERROR_EXPECTED:
        return None
    return (
        "In this step vLLM's probabilities of the sampled tokens differ from the policy's by a factor of "
        f"{gap.token_mult_prob_error:.3g} on average; rounding usually stays below {PROB_ERROR_EXPECTED:g}. Watch "
        "restrain/token_mult_prob_error and restrain/mismatch_kl. If they rise, compare vLLM's and transformers' "
        "versions and numeric types, and run `restrain gpu-check --only training`."
    )


@dataclass(frozen=True)
class StepRecord:
    """What is known of a step's rollouts before it is trained on.

    `rounding` is the least of the steps so far: the first is a new adapter's or an unmoved policy's, or the first after
    a resume. `rollout_gaps` has a gap for each trained rollout where rollouts are kept. `warned` names what the run's
    log was warned of so far: of each once a run, for later steps have its number. `agent` has the means of what the
    user's own agent logs.
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
        """Its numbers by the names they are logged under."""
        named = {f"restrain/{name}": value for name, value in {**self.votes.scalars(), **self.gap.scalars()}.items()}
        arrived = {} if self.update_arrived is None else {UPDATE_ARRIVED: self.update_arrived}
        return {**named, **self.agent, **arrived}


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
    agent, before = take_agent_logs(samples), LAST_STEP.get(maker)
    experiences = wrapped(*args, **kwargs)
    tokens = TokenLogProbs.of(experiences)
    rounding = min(before.rounding if before is not None else math.inf, rounding_of(tokens))
    gap = logprob_gap(tokens)
    # The asynchronous trainer's rollouts may be of earlier weights, by design.
    is_of_now = not maker.args.train.async_enable
    kind = config_here().answers
    # Examples are there where rollouts are kept.
    warnings = {
        "answers": missing_warning(votes.missing_share_of_voters, unread(scored), "this step's rollouts", kind),
        "mismatch": mismatch_warning(gap) if is_of_now else None,
    }
    LAST_STEP[maker] = StepRecord(
        votes=votes,
        scored=scored,
        gap=gap,
        rounding=rounding,
        update_arrived=update_arrived(tokens, rounding),
        rollout_gaps=rollout_gaps(experiences) if scored else [],
        warned=warn_once(warnings, before.warned if before is not None else frozenset()),
        agent=agent,
    )
    if is_of_now:
        refuse_mismatch(gap, config_here().logprob_gap_limit)
    for experience in experiences:
        # A critic alone would read returns (trainer/ray/ppo_critic.py), and group_norm has none.
        experience.advantages = experience.returns = None
    return experiences


def warn_once(warnings: Mapping[str, str | None], warned: frozenset[str]) -> frozenset[str]:
    """Log those that there are and that the run's log does not have yet; the names of all that it has then."""
    new = {name: text for name, text in warnings.items() if text and name not in warned}
    for text in new.values():
        logging.getLogger(__name__).warning("%s", text)
    return warned | new.keys()
