"""What a step's rollouts say before they are trained on: their votes, and how far vLLM's policy is from ours."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

import ray
import torch

from restrain_openrlhf.answers.votes import missing_warning
from restrain_openrlhf.errors import PolicyMismatchError
from restrain_openrlhf.hook.install.environment import config_here
from restrain_openrlhf.hook.rollout.group_columns import ScoredGroup, take_agent_logs, take_scored, take_votes, unread
from restrain_openrlhf.method import build
from restrain_openrlhf.records.metrics import UPDATE_ARRIVED
from restrain_openrlhf.scoring.vote_statistics import StepVotes

# The stricter of two limits of `token_mult_prob_error` in NeMo-RL's tests.
PROB_ERROR_EXPECTED = 1.05
# If a move is smaller than this times the rounding, the share mostly measures rounding.
MOVE_ABOVE_ROUNDING = 2.0
# The column of the places of rollouts, by which the training step's gaps find their rollouts; it is never logged.
PLACE = "restrain/place"
# What a training step that measures the gap itself adds to the host's numbers of the step: its StepGap.
GAP_OF_STEP = "restrain/gap_of_step"


@dataclass(frozen=True)
class LogProbGap:
    """The mean of |log p_vLLM − log π| over response tokens, in nats, and relative to the mean of |log p_vLLM|.

    An error of δ in a logit moves the log-probability of a token of probability p by (1 − p) δ, and |log p| is about
    1 − p: so the relative gap is about the logits' error, however sure the policy is of its tokens.

    With r = π / p_vLLM of a token, `mismatch_kl` (prime-rl's name) is the mean of r − log r − 1, which estimates
    KL(p_vLLM ‖ π) in nats, and `token_mult_prob_error` (NeMo-RL's name) is the mean of e^|log r|. They are 0 and 1
    where vLLM and the policy agree. `logprob_gap` is slime's train_rollout_logprob_abs_diff, taken per token.
    """

    logprob_gap: float
    logprob_gap_relative: float
    mismatch_kl: float
    token_mult_prob_error: float


@dataclass(frozen=True)
class GapSums:
    """Sums over response tokens of v, p and b: the log-probabilities of vLLM, the policy and the reference policy.

    In the order of the fields: the tokens, |v|, |p − v|, (p − v)², e^(p−v) − (p − v) − 1, e^|p−v| − 1, (p − b)² and
    (v − b)(p − b). The last two are 0 without a reference policy.
    """

    tokens: float
    size: float
    apart: float
    squares: float
    mismatch: float
    factor: float
    move: float
    along: float

    @classmethod
    def of(cls, experiences: Sequence[Any]) -> "GapSums":
        """From the host's experiences, however they are split into micro-batches; each has (B, T-1) tensors.

        Log-probabilities of vLLM are always there, because the hooked rollout actors ask for them.
        """
        each = [
            sums_of(one.action_mask, one.rollout_log_probs, one.action_log_probs, one.base_action_log_probs)
            for one in experiences
        ]
        return cls(*torch.stack(each).sum(0).tolist())


def sums_of(mask: torch.Tensor, rollout: torch.Tensor, policy: torch.Tensor, base: torch.Tensor | None) -> torch.Tensor:
    """The sums of a micro-batch, whose tensors are (B, T-1), in the order of GapSums' fields: (8,), on its device."""
    place = mask.flatten().nonzero().squeeze(1)
    # e^89 is no fp32 number, and e^d - d - 1 of a small d is all rounding.
    v, p = (each.take(place).double() for each in (rollout, policy))
    b, apart = p if base is None else base.take(place).double(), p - v
    terms = (
        v.abs(),
        apart.abs(),
        apart**2,
        apart.expm1() - apart,
        apart.abs().expm1(),
        (p - b) ** 2,
        (v - b) * (p - b),
    )
    return torch.stack([v.new_tensor(len(place)), *(each.sum() for each in terms)])


@dataclass(frozen=True)
class StepRecord:
    """What is known of a step's rollouts; the gap may be measured only while the step is trained on.

    `rounding` is the least of the steps so far in this process; in the first of them vLLM and the policy have the same
    weights. `rollout_gaps` has a gap for each trained rollout if rollouts are kept. `warned` names the warnings that
    are already in the run's log, each of which is given once. `agent` has the means of what the user's own agent logs.
    """

    votes: StepVotes
    scored: Sequence[ScoredGroup]
    rounding: float
    warned: frozenset[str]
    agent: Mapping[str, float] = field(default_factory=dict)
    gap: LogProbGap | None = None
    update_arrived: float | None = None
    rollout_gaps: Sequence[float | None] = ()

    def measured(self, found: "StepGap", same_weights: bool = True) -> "StepRecord":
        """With the gap, which is known after the host's pass or after the training step. A new warning is logged."""
        gap, rounding = logprob_gap(found.sums), min(self.rounding, rounding_of(found.sums))
        warning = mismatch_warning(gap) if same_weights else None
        return replace(
            self,
            rounding=rounding,
            warned=warn_once({"mismatch": warning}, self.warned),
            gap=gap,
            update_arrived=update_arrived(found.sums, rounding),
            rollout_gaps=[gap for _, gap in sorted(found.rollouts.items())] if self.scored else [],
        )

    def scalars(self) -> dict[str, float]:
        gap = asdict(self.gap) if self.gap else {}
        named = {f"restrain/{name}": value for name, value in {**self.votes.scalars(), **gap}.items()}
        arrived = {} if self.update_arrived is None else {UPDATE_ARRIVED: self.update_arrived}
        return {**named, **self.agent, **arrived}


@dataclass(frozen=True)
class StepGap:
    """The gap of a whole step: its sums, and each rollout's gap by its place in the order of drawing.

    The host prints it with a step's numbers, and should not print every rollout.
    """

    sums: GapSums
    rollouts: Mapping[int, float | None] = field(repr=False)


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
    # Those of the asynchronous trainer's vLLM may be earlier ones, by design.
    same_weights = not maker.args.train.async_enable
    with own_log_probs(maker) if config.own_old_log_probs else nullcontext():
        experiences = wrapped(*args, **kwargs)
    is_read_later = config.keeps_rollouts or build(config.method).reads_history
    record = _record(maker, votes, scored if is_read_later else [], agent)
    if not config.own_old_log_probs:
        record = record.measured(step_gap(experiences), same_weights)
    LAST_STEP[maker] = record
    if record.gap is not None and same_weights:
        refuse_mismatch(record.gap, config.logprob_gap_limit)
    for experience in experiences:
        # Only a critic reads returns (trainer/ray/ppo_critic.py), and with group_norm there is none.
        experience.advantages = experience.returns = None
        if config.own_old_log_probs:
            experience.info[PLACE] = torch.tensor(experience.index)
    return experiences


@contextmanager
def own_log_probs(maker: Any) -> Iterator[None]:
    """Within the block, the host asks no policy for log-probabilities, and gets NaN in their place.

    The training step puts its own there (hook/policy/actor.py), and nothing else may read them. The host asks in
    trainer/ppo_utils/experience_maker.py, make_experience; this can go when it leaves the pass out by itself.
    """

    def forward(action_mask: Sequence[torch.Tensor], **_: Any) -> Any:
        return ray.put([[torch.full(mask.shape, math.nan) for mask in action_mask]])

    group = SimpleNamespace(async_run_method_batch=forward, async_run_method=lambda **_: [])
    with patch.object(maker, "actor_model_group", group):
        yield


def _record(maker: Any, votes: StepVotes, scored: Sequence[ScoredGroup], agent: Mapping[str, float]) -> StepRecord:
    """The record of a step whose experience the host has made. A warning that is new is logged."""
    before = LAST_STEP.get(maker)
    rounding, warned = (math.inf, frozenset[str]()) if before is None else (before.rounding, before.warned)
    kind = config_here().answers
    warning = missing_warning(votes.missing_share_of_voters, unread(scored), "this step's rollouts", kind)
    return StepRecord(votes, scored, rounding, warn_once({"answers": warning}, warned), agent)


def warn_once(warnings: Mapping[str, str | None], warned: frozenset[str]) -> frozenset[str]:
    """Log the warnings that the run's log does not have yet, and return the names of all that it has now."""
    new = {name: text for name, text in warnings.items() if text and name not in warned}
    for text in new.values():
        logging.getLogger(__name__).warning("%s", text)
    return warned | new.keys()


def logprob_gap(sums: GapSums) -> LogProbGap:
    count = max(sums.tokens, 1)
    return LogProbGap(
        logprob_gap=sums.apart / count,
        logprob_gap_relative=sums.apart / sums.size if sums.apart else 0.0,
        mismatch_kl=sums.mismatch / count,
        token_mult_prob_error=1 + sums.factor / count,
    )


def rounding_of(sums: GapSums) -> float:
    """The root mean square of log p_vLLM − log π over response tokens, in nats; 0 without tokens."""
    return math.sqrt(sums.squares / max(sums.tokens, 1))


def update_arrived(sums: GapSums, rounding: float) -> float | None:
    """The share of the policy's update that vLLM has: 1 where it has all of it, 0 where it still has the base model.

    It is <v − b, p − b> / |p − b|² over the log-probabilities of response tokens: v of vLLM, p of the policy and b of
    the reference policy. The rounding of b is part of both differences, and draws the share towards 1/2 if the move p −
    b is small. So the result is None if the move's root mean square is below twice `rounding`, which is that of v −
    p while both have the same weights. It is also None without a reference policy.
    """
    if not math.sqrt(sums.move / max(sums.tokens, 1)) > MOVE_ABOVE_ROUNDING * rounding:
        return None
    return sums.along / sums.move


def step_gap(experiences: Sequence[Any]) -> StepGap:
    """An experience's `index` holds the places of its rollouts (experience_maker.py, split_rollout_samples)."""
    rollouts: dict[int, float | None] = {}
    for each in experiences:
        gaps = rollout_gaps(each.action_mask, each.rollout_log_probs, each.action_log_probs)
        rollouts.update(zip(each.index, gaps, strict=True))
    return StepGap(GapSums.of(experiences), rollouts)


def rollout_gaps(mask: torch.Tensor, rollout: torch.Tensor, policy: torch.Tensor) -> list[float | None]:
    """Each rollout's mean of |log p_vLLM − log π| over its tokens, in nats, of tensors (B, T-1).

    It is None for a rollout without tokens, and where the mean is not finite.
    """
    apart = torch.where(mask.bool(), (rollout.float() - policy.float()).abs(), 0.0)
    means = (apart.sum(-1) / mask.sum(-1)).tolist()
    return [gap if math.isfinite(gap) else None for gap in means]


def refuse_mismatch(gap: LogProbGap, limit: float | None) -> None:
    """Raises PolicyMismatchError if the relative gap is above the limit, so another policy drew the rollouts."""
    if limit is not None and not gap.logprob_gap_relative <= limit:
        raise PolicyMismatchError(
            f"vLLM's log-probabilities of the sampled tokens differ from the policy's by {gap.logprob_gap:.3g} nats a "
            f"token, {gap.logprob_gap_relative:.0%} of their mean size; logprob_gap_limit is {limit:.0%}. Rounding "
            "does not explain that: vLLM has other weights than the policy, or computes another model. The run stopped "
            "before it trained on this step, and the checkpoints are unchanged. Compare vLLM's and transformers' "
            "versions and numeric types on all nodes. If such a gap is expected (quantised rollouts), raise "
            "logprob_gap_limit, or set it to null."
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
