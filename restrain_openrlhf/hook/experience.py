"""Wraps RemoteExperienceMaker.make_experience_batch: every group is scored, and its pair travels with the rollouts."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from restrain_openrlhf.hook.groups import RolloutGroup, group_rollouts
from restrain_openrlhf.hook.logprob_gap import logprob_gap, refuse_mismatch
from restrain_openrlhf.hook.rollouts import refuse_undrawn
from restrain_openrlhf.hook.service_scores import score_of_service
from restrain_openrlhf.hook.settings import HookSettings
from restrain_openrlhf.method import GroupScore, build
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reward.protocol import KL_WEIGHT, NEGATIVE, POSITIVE
from restrain_openrlhf.scoring import GroupScorer
from restrain_openrlhf.vote_statistics import step_votes


@cache
def scorer_for(settings: HookSettings) -> GroupScorer:
    """One scorer per process; the reference is read once."""
    reference = load_reference(settings.reference) if settings.reference else None
    return GroupScorer(build(settings.method), reference)


def make_experience_batch(
    wrapped: Callable[..., list[Any]], maker: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    """Score the groups, let the host make its experience, then remove the host's own advantages.

    Advantages become None so that a policy actor without the hook fails at once: it must never train on them.
    """
    samples = args[0] if args else kwargs["rollout_samples"]
    groups = group_rollouts(samples, maker.args.rollout.n_samples_per_prompt, maker.tokenizer)
    scores = score_groups(groups, HookSettings.from_environment())
    for group, score in zip(groups, scores, strict=True):
        attach(group.samples, score)
    maker.restrain_votes = step_votes(
        scores,
        [group.prompt for group in groups],
        [group.answers for group in groups],
        [group.truncated for group in groups],
    )
    experiences = wrapped(*args, **kwargs)
    maker.restrain_logprob_gap = logprob_gap(experiences)
    if not maker.args.train.async_enable:
        # The asynchronous trainer's rollouts may be of earlier weights, by design.
        refuse_mismatch(maker.restrain_logprob_gap, HookSettings.from_environment().logprob_gap_limit)
    for experience in experiences:
        experience.advantages = None
    return experiences


def score_groups(groups: Sequence[RolloutGroup], settings: HookSettings) -> list[GroupScore]:
    """Each group's score: made here, or read off what the reward service answered for each rollout."""
    if settings.advantages == "service":
        return [score_of_service(group, build(settings.method)) for group in groups]
    scorer = scorer_for(settings)
    refuse_undrawn(scorer.method.rollouts, all(group.entropies is not None for group in groups))
    return [scorer.score(group.prompt, group.answers, group.gold, group.entropies) for group in groups]


def attach(samples: Sequence[Any], score: GroupScore) -> None:
    """Put each rollout's reward, pair and KL weight into its Experience.

    `info` is the host's per-sample side channel: it survives batching, and its means are logged.
    """
    for index, sample in enumerate(samples):
        sample.rewards = torch.tensor([score.rewards[index]], dtype=torch.float32)
        sample.info["reward"] = sample.rewards
        sample.info[POSITIVE] = torch.tensor([score.pair.positive[index]], dtype=torch.float32)
        sample.info[NEGATIVE] = torch.tensor([score.pair.negative[index]], dtype=torch.float32)
        sample.info[KL_WEIGHT] = torch.tensor([score.kl_weight], dtype=torch.float32)
