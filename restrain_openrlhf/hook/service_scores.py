"""Reads a group's score off the rollouts, where the reward service put it in its replies' extra_logs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from restrain_openrlhf.answers import classes
from restrain_openrlhf.errors import GroupError
from restrain_openrlhf.hook.groups import RolloutGroup
from restrain_openrlhf.method import AdvantagePair, GroupScore, Method
from restrain_openrlhf.reward.protocol import EXPECTED_REWARD, KL_WEIGHT, NEGATIVE, PENALIZED, POSITIVE, PROMPT_WEIGHT


def score_of_service(group: RolloutGroup, method: Method) -> GroupScore:
    """The service's score of the rollouts of one prompt; the votes are counted here, for the step's statistics alone.

    A prompt that is twice in one batch may be split into groups differently by the service: each rollout has its own
    pair, which is what is trained on. Raises GroupError where a rollout came without one.
    """
    return GroupScore(
        votes=method.count_votes(classes(group.answers)),
        label_weights=np.zeros(0),
        pair=AdvantagePair(_values(group, POSITIVE), _values(group, NEGATIVE)),
        rewards=_values(group, EXPECTED_REWARD),
        penalized=bool(_values(group, PENALIZED).any()),
        prompt_weight=float(_values(group, PROMPT_WEIGHT).mean()),
        kl_weight=float(_values(group, KL_WEIGHT).mean()),
    )


def _values(group: RolloutGroup, name: str) -> np.ndarray:
    return np.array([_value(sample, name, group.samples) for sample in group.samples], dtype=np.float64)


def _value(sample: Any, name: str, samples: Sequence[Any]) -> float:
    if name not in sample.info:
        without = sum(name not in other.info for other in samples)
        raise GroupError(
            f"{without} of a prompt's {len(samples)} rollouts came without {name!r}. Either the reward service gave no "
            "answer (see the rollout workers' log for 'Failed to fetch reward'), or training rows have labels, which "
            "it grades instead of voting on: leave data.label_key out, or set service.labelled_rows to vote."
        )
    return float(sample.info[name].item())
