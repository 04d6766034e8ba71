"""How a scored group travels in OpenRLHF's rollouts, from the agent to the trainer: columns of numbers, and texts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, GroupAnswers
from restrain_openrlhf.answers.votes import StepVote, end_of
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.errors import GroupError, HookNotActiveError
from restrain_openrlhf.method import GroupScore
from restrain_openrlhf.scoring.vote_statistics import StepVotes, step_votes
from restrain_openrlhf.scoring.wire import KL_WEIGHT, NEGATIVE, PENALIZED, POSITIVE, PROMPT_WEIGHT, GroupRequest

# H_i in nats, where the rollouts were drawn with entropies.
ENTROPY = "restrain/entropy"
# Columns of the group's vote, besides two in scoring/wire.py; equal for all rollouts of a group.
VOTERS = "restrain/voters"
MAJORITY_COUNT = "restrain/majority_count"
EFFECTIVE_LABELS = "restrain/effective_labels"
MISSING = "restrain/missing"
TRUNCATED = "restrain/truncated"
# The response tokens that were generated for the group.
GENERATED = "restrain/generated_tokens"
# The prompt's place among all that the run has dispatched, with `seeded_rollouts`.
PLACE = "restrain/place"
# Columns of the user's own agent (trajectories.py): its reward, its turns, the share of the group's trajectories that
# failed, and the prefix of its own extra logs.
AGENT_REWARD = "restrain/agent_reward"
AGENT_TURNS = "restrain/agent_turns"
AGENT_FAILED = "restrain/agent_failed"
AGENT_LOG = "agent/"
TRAINED_ON = (POSITIVE, NEGATIVE, KL_WEIGHT)
AGENT = (AGENT_REWARD, AGENT_TURNS, AGENT_FAILED)


def columns(request: GroupRequest, score: GroupScore) -> list[dict[str, float]]:
    """The columns of each trained rollout, which become the host's extra_logs (utils/agent.py) and Experience.info."""
    pairs = zip(score.pair.positive.tolist(), score.pair.negative.tolist(), strict=True)
    rows = [{POSITIVE: one, NEGATIVE: other, KL_WEIGHT: score.kl_weight} for one, other in pairs]
    if request.entropies is None:
        return rows
    return [{**row, ENTROPY: entropy} for row, entropy in zip(rows, request.entropies, strict=True)]


def vote_columns(request: GroupRequest, score: GroupScore) -> dict[str, float]:
    return {
        PROMPT_WEIGHT: score.prompt_weight,
        PENALIZED: float(score.penalized),
        VOTERS: float(score.votes.n),
        MAJORITY_COUNT: float(score.votes.majority_count),
        EFFECTIVE_LABELS: score.votes.effective_labels,
        MISSING: float(score.votes.classes.count(None)),
        TRUNCATED: float(sum(not response.finished for response in request.responses)),
    }


def take_votes(samples: Sequence[Any], n: int, kind: AnswerKind = MATHEMATICS) -> StepVotes:
    """Statistics of a step's groups of n rollouts. Places are removed from the rollouts.

    `samples` are the host's Experience objects, one rollout each (experience.py), and their `kind` of answer says which
    majorities of different prompts are equal. Raises GroupError if their number is no multiple of n, or n neighbours do
    not share one prompt; HookNotActiveError where a rollout was not scored.
    """
    if not samples or len(samples) % n:
        raise GroupError(
            f"{len(samples)} rollouts arrived, which is not a multiple of rollout.n_samples_per_prompt = {n}. A "
            "rollout was lost or filtered out: see the rollout workers' log."
        )
    prompts = [_prompt_of(samples[start : start + n]) for start in range(0, len(samples), n)]
    groups = [sample.labels[0] for sample in samples[::n]]
    rows = [{**vote_columns(group.request, group.score), GENERATED: group.tokens} for group in groups]
    votes = {name.removeprefix("restrain/"): np.array([float(row[name]) for row in rows]) for name in rows[0]}
    majorities = kind.alike([group.score.majority_key for group in groups])
    pair = (torch.cat([sample.info[name] for sample in samples]).numpy() for name in (POSITIVE, NEGATIVE))
    for sample in samples:
        sample.info.pop(PLACE, None)
    return step_votes(prompts, votes, majorities, *pair)


def take_agent_logs(samples: Sequence[Any]) -> dict[str, float]:
    """The mean of each number of the agent, over the rollouts that have it. The numbers are removed from the rollouts.

    The host requires the same names in all rollouts of a step (trainer/ppo_utils/experience.py, make_experience_batch).
    """
    found: dict[str, list[float]] = {}
    for sample in samples:
        for name in [name for name in sample.info if name.startswith(AGENT_LOG) or name in AGENT]:
            found.setdefault(name, []).append(float(sample.info.pop(name).item()))
    return {name: float(np.mean(values)) for name, values in found.items()}


def _prompt_of(samples: Sequence[Any]) -> str:
    """The prompt of a group. Raises an error unless all of its rollouts share the prompt and were scored together."""
    without = sum(not sample.info.keys() >= set(TRAINED_ON) for sample in samples)
    if without or not isinstance(samples[0].labels[0], ScoredGroup):
        raise HookNotActiveError(
            f"{without or len(samples)} of a prompt's {len(samples)} rollouts carry no advantages: the rollout actors "
            "that drew them do not run this project's agent, or run it without the hook."
        )
    prompts = {prompt for sample in samples for prompt in sample.prompts}
    if len(prompts) != 1:
        raise GroupError(
            f"{len(samples)} neighbouring rollouts, which should be one group, belong to {len(prompts)} prompts, for "
            f"example {sorted(prompts)[0][:60]!r} and {sorted(prompts)[-1][:60]!r}. Votes would be wrong. Install the "
            "openrlhf that `restrain doctor` names, unchanged."
        )
    if (scored := samples[0].labels[0].score.rewards.size) != len(samples):
        raise GroupError(
            f"{len(samples)} neighbouring rollouts were scored as a group of {scored}: OpenRLHF did not start them "
            "together. Install the openrlhf that `restrain doctor` names, unchanged."
        )
    return str(prompts.pop())


@dataclass(frozen=True)
class ScoredGroup:
    """The texts that were scored, those of voters included, the score, and the number of generated tokens.

    It travels to the trainer in a label's place.
    """

    request: GroupRequest
    score: GroupScore
    tokens: int = 0


def labels(group: ScoredGroup, trained: int, carry: bool) -> list[Any]:
    """The host's label of each trained rollout; with `carry`, the first label is the group itself.

    The host does not read the labels of rollouts in training (trainer/ppo_utils/), so one of them can carry the group.
    """
    plain = group.request.gold or ""
    return [group if carry and not place else plain for place in range(trained)]


def take_scored(samples: Sequence[Any], n: int) -> list[ScoredGroup]:
    """The groups that a step's rollouts carry in labels, which become plain again.

    `samples` are the host's Experience objects, one rollout each, with groups of n neighbours (`take_votes` checks it).
    """
    found = [sample.labels[0] for sample in samples[::n]]
    for sample, group in zip(samples[::n], found, strict=True):
        sample.labels = labels(group, 1, carry=False)
    return found


def votes_of_prompts(groups: Sequence[ScoredGroup]) -> list[StepVote]:
    """The vote of each prompt of a step; of a prompt that the step has twice, that of the first group."""
    votes = dict[str, StepVote]()
    for group in groups:
        prompt, found, score = text_hash(group.request.prompt), group.score.votes, group.score
        majority = GroupAnswers(score.answers, found.classes).majority
        votes.setdefault(prompt, StepVote(found.majority_count / found.n, score.flipped, prompt, majority))
    return list(votes.values())


def unread(groups: Sequence[ScoredGroup]) -> Iterator[str]:
    """The ends of responses that are not truncated and yet have no answer."""
    for group in groups:
        for response, answer in zip(group.request.responses, group.score.answers, strict=True):
            if answer is None and response.finished:
                yield end_of(response.text)
