"""Wraps RemoteExperienceMaker.make_experience_batch: the votes are counted, and the host's advantages are removed."""

from collections.abc import Callable
from typing import Any

from restrain_openrlhf.hook.environment import config_here
from restrain_openrlhf.hook.group_columns import take_votes
from restrain_openrlhf.hook.logprob_gap import logprob_gap, refuse_mismatch
from restrain_openrlhf.vote_statistics import step_votes


def make_experience_batch(
    wrapped: Callable[..., list[Any]], maker: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    """Check the groups, let the host make its experience, then remove the host's own advantages.

    A rollout's own pair came with it (hook/agent.py). Advantages become None so that a policy actor without the hook
    fails at once: it must never train on them.
    """
    samples = args[0] if args else kwargs["rollout_samples"]
    maker.restrain_votes = step_votes(take_votes(samples, maker.args.rollout.n_samples_per_prompt))
    experiences = wrapped(*args, **kwargs)
    maker.restrain_logprob_gap = logprob_gap(experiences)
    if not maker.args.train.async_enable:
        # The asynchronous trainer's rollouts may be of earlier weights, by design.
        refuse_mismatch(maker.restrain_logprob_gap, config_here().logprob_gap_limit)
    for experience in experiences:
        experience.advantages = None
    return experiences
