"""A scored group on its way to the trainer: texts and score, in the place of a label, which the host only carries."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from restrain_openrlhf.reward.wire import GroupReply, GroupRequest
from restrain_openrlhf.vote_statistics import end_of


@dataclass(frozen=True)
class ScoredGroup:
    """What was asked to be scored, voters included, and the score."""

    request: GroupRequest
    reply: GroupReply


def labels(group: ScoredGroup, trained: int, carry: bool) -> list[Any]:
    """The host's label of each trained rollout; with `carry`, that of the first is the group.

    The host's Experience takes numbers and lists, and reads no label of a rollout in training (trainer/ppo_utils/).
    """
    plain = group.request.gold or ""
    return [group if carry and not place else plain for place in range(trained)]


def take_scored(samples: Sequence[Any], n: int) -> list[ScoredGroup]:
    """The groups that the step's rollouts carry, n rollouts each; none where nothing is kept. Labels are plain again.

    `samples` are the host's Experience objects, one rollout each, groups as neighbours (group_columns.py checks it).
    """
    found = [sample.labels[0] for sample in samples[::n] if isinstance(sample.labels[0], ScoredGroup)]
    for sample, group in zip(samples[::n], found, strict=bool(found)):
        sample.labels = labels(group, 1, carry=False)
    return found


def unread(groups: Sequence[ScoredGroup]) -> Iterator[str]:
    """The ends of responses that ended by themselves and have no answer."""
    for group in groups:
        for response, answer in zip(group.request.responses, group.reply.answers, strict=True):
            if answer is None and response.finished:
                yield end_of(response.text)
