"""Wraps RemoteExperienceMaker.make_experience_batch: counts votes, compares vLLM with the policy, records it."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from restrain_openrlhf.answers.votes import missing_warning
from restrain_openrlhf.hook.install.environment import config_here
from restrain_openrlhf.hook.policy import rollout_gap
from restrain_openrlhf.hook.policy.rollout_gap import LogProbGap, TokenLogProbs
from restrain_openrlhf.hook.rollout.group_columns import ScoredGroup, take_agent_logs, take_scored, take_votes, unread
from restrain_openrlhf.records.metrics import UPDATE_ARRIVED
from restrain_openrlhf.scoring.vote_statistics import StepVotes


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
        """The numbers of the step by the names under which they are logged."""
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
        rollout_gap.refuse_mismatch(record.gap, config.logprob_gap_limit)
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
    rounding = min(before.rounding if before is not None else math.inf, rollout_gap.rounding_of(tokens))
    gap = rollout_gap.logprob_gap(tokens)
    warnings = _warnings(votes, scored, gap if _has_same_weights(maker) else None)
    return StepRecord(
        votes=votes,
        scored=scored,
        gap=gap,
        rounding=rounding,
        update_arrived=rollout_gap.update_arrived(tokens, rounding),
        rollout_gaps=rollout_gap.rollout_gaps(experiences) if scored else [],
        warned=warn_once(warnings, before.warned if before is not None else frozenset()),
        agent=agent,
    )


def _warnings(votes: StepVotes, scored: Sequence[ScoredGroup], gap: LogProbGap | None) -> Mapping[str, str | None]:
    """What is wrong with the step, by the names of warnings. Only where rollouts are kept are there examples."""
    rollouts, kind = "this step's rollouts", config_here().answers
    return {
        "answers": missing_warning(votes.missing_share_of_voters, unread(scored), rollouts, kind),
        "mismatch": None if gap is None else rollout_gap.mismatch_warning(gap),
    }


def warn_once(warnings: Mapping[str, str | None], warned: frozenset[str]) -> frozenset[str]:
    """Log the warnings that the run's log does not have yet, and return the names of all that it has now."""
    new = {name: text for name, text in warnings.items() if text and name not in warned}
    for text in new.values():
        logging.getLogger(__name__).warning("%s", text)
    return warned | new.keys()
