"""A group's score as columns of OpenRLHF's rollouts: written by the executor that drew them, read by the trainer."""

import hashlib
from collections.abc import Sequence
from typing import Any

import torch

from restrain_openrlhf.errors import GroupError, HookNotActiveError
from restrain_openrlhf.reward.wire import (
    KL_WEIGHT,
    NEGATIVE,
    PENALIZED,
    POSITIVE,
    PROMPT_WEIGHT,
    GroupReply,
    GroupRequest,
)
from restrain_openrlhf.vote_statistics import GroupVote

# H_i in nats, where the rollouts were drawn with it.
ENTROPY = "restrain/entropy"
# What the group's vote was, with the two of reward/wire.py; equal for all rollouts of a group.
VOTERS = "restrain/voters"
MAJORITY_COUNT = "restrain/majority_count"
EFFECTIVE_LABELS = "restrain/effective_labels"
MISSING = "restrain/missing"
TRUNCATED = "restrain/truncated"
RESIDUAL_TIMEOUTS = "restrain/residual_timeouts"
RESIDUAL_DEATHS = "restrain/residual_deaths"
# For the hooked trainer alone. A digest of the majority answer, 0 where there is none: equal where answers are equal.
MAJORITY = "restrain/majority"
# Also for the trainer: response tokens that were generated for the group.
GENERATED = "restrain/generated_tokens"
# The prompt's place among all that the run dispatched, where its rollouts are seeded.
PLACE = "restrain/place"
TRAINED_ON = (POSITIVE, NEGATIVE, KL_WEIGHT)
RESIDUAL = (RESIDUAL_TIMEOUTS, RESIDUAL_DEATHS)
VOTE = (PROMPT_WEIGHT, PENALIZED, VOTERS, MAJORITY_COUNT, EFFECTIVE_LABELS, MISSING, TRUNCATED, *RESIDUAL)


def columns(request: GroupRequest, reply: GroupReply) -> list[dict[str, float]]:
    """The host's extra_logs of each trained rollout (utils/agent.py); they become Experience.info."""
    vote = {
        PROMPT_WEIGHT: reply.prompt_weight,
        PENALIZED: float(reply.penalized),
        VOTERS: float(len(reply.answers)),
        MAJORITY_COUNT: float(reply.majority_count),
        EFFECTIVE_LABELS: reply.effective_labels,
        MISSING: float(reply.answers.count(None)),
        TRUNCATED: float(sum(not response.finished for response in request.responses)),
        RESIDUAL_TIMEOUTS: float(reply.residual_timeouts),
        RESIDUAL_DEATHS: float(reply.residual_deaths),
    }
    pairs = zip(reply.advantage_pos, reply.advantage_neg, strict=True)
    rows = [{POSITIVE: one, NEGATIVE: other, KL_WEIGHT: reply.kl_weight, **vote} for one, other in pairs]
    if request.entropies is None:
        return rows
    return [{**row, ENTROPY: entropy} for row, entropy in zip(rows, request.entropies, strict=True)]


def majority_digest(key: str | None) -> int:
    """63 bits of the majority answer's canonical key, 0 for None."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 1 if key is not None else 0


def take_votes(samples: Sequence[Any], n: int) -> list[GroupVote]:
    """The votes of one step's groups, n rollouts each: what is not trained on is taken off the rollouts.

    `samples` are the host's Experience objects, one rollout each (experience.py). Raises GroupError when the count is
    no multiple of n or when n neighbours do not share one prompt, HookNotActiveError where a rollout was not scored.
    """
    if not samples or len(samples) % n:
        raise GroupError(
            f"{len(samples)} rollouts arrived, which is no multiple of rollout.n_samples_per_prompt = {n}. "
            "A rollout was lost or filtered: see the rollout workers' log."
        )
    return [_take_vote(samples[start : start + n]) for start in range(0, len(samples), n)]


def _take_vote(samples: Sequence[Any]) -> GroupVote:
    _refuse_unscored(samples)
    vote = GroupVote(
        prompt=_one_prompt(samples),
        positive=_column(samples, POSITIVE),
        negative=_column(samples, NEGATIVE),
        majority=int(samples[0].info[MAJORITY].item()) or None,
        generated_tokens=int(samples[0].info[GENERATED].item()),
        **{name.removeprefix("restrain/"): float(samples[0].info[name].item()) for name in VOTE},
    )
    for sample in samples:
        for name in (*VOTE, MAJORITY, GENERATED, PLACE):
            sample.info.pop(name, None)
    return vote


def _refuse_unscored(samples: Sequence[Any]) -> None:
    without = sum(
        any(name not in sample.info for name in (*TRAINED_ON, *VOTE, MAJORITY, GENERATED)) for sample in samples
    )
    if without:
        raise HookNotActiveError(
            f"{without} of a prompt's {len(samples)} rollouts carry no advantages, so the rollout actors that drew "
            "them do not run this project's agent, or run it unhooked."
        )


def _one_prompt(samples: Sequence[Any]) -> str:
    prompts = {prompt for sample in samples for prompt in sample.prompts}
    if len(prompts) != 1:
        raise GroupError(
            f"{len(samples)} neighbouring rollouts belong to {len(prompts)} prompts, for example "
            f"{sorted(prompts)[0][:60]!r} and {sorted(prompts)[-1][:60]!r}. The host's order of rollouts is not what "
            "the hook relies on; votes would be wrong."
        )
    return str(prompts.pop())


def _column(samples: Sequence[Any], name: str) -> Any:
    return torch.cat([sample.info[name] for sample in samples]).numpy()
