"""The file OpenRLHF loads as `--reward.remote_url`: grades evaluation rows; training rewards come from the hook."""

import re
from collections.abc import Sequence
from typing import TypedDict

from restrain_openrlhf.evaluation.grade import grade

# The host decodes a query with its special tokens: an end mark stands behind the last word of the answer.
_END_MARK = re.compile(r"(?:</?[a-z_]+>|<[|｜][^<>|｜]+[|｜]>)\s*\Z")


class Reward(TypedDict):
    """What openrlhf/utils/agent.py reads of a reward function's answer."""

    rewards: float | None
    scores: float | None


def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[str]) -> Reward:
    """The host asks about one rollout at a time, in a thread.

    A row with a label is graded 1 or 0, as `restrain eval` grades it. A row without one gets no reward: the hook scores
    whole groups later, and a host without the hook stops there instead of training on nothing ("reward_model_group is
    required").
    """
    (query,), (prompt,), (label,) = queries, prompts, labels
    if label in ("", None):
        return Reward(rewards=None, scores=None)
    response = _END_MARK.sub("", query.removeprefix(prompt))
    correct = float(grade(response, str(label)).correct)
    return Reward(rewards=correct, scores=correct)
