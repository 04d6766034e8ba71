"""Right or wrong, by gold: a kept group's rollouts, its majority, and the weight its right answers were given."""

from collections.abc import Sequence
from functools import lru_cache

from restrain_openrlhf.answers.gold import is_right
from restrain_openrlhf.kept.groups import KeptGroup, KeptRollout

# Steps visit the same prompts again, and rollouts repeat answers.
_is_right = lru_cache(maxsize=1 << 16)(is_right)


def right_rollouts(group: KeptGroup, gold: str) -> tuple[bool, ...]:
    """Whether each rollout's answer is right, by the project's one rule (answers/gold.py); a missing one is wrong."""
    return tuple(_is_right(rollout.answer, gold) for rollout in group.rollouts)


def majority(group: KeptGroup) -> KeptRollout | None:
    """The first rollout of the class with most votes, ties in order of appearance; None where there is no class."""
    voted = [rollout for rollout in group.rollouts if rollout.label is not None]
    return min(voted, key=lambda rollout: (-(rollout.class_votes or 0), rollout.label or 0), default=None)


def majority_is_right(group: KeptGroup, right: Sequence[bool]) -> bool:
    """Whether that rollout is right; a group without any answer is wrong."""
    first = majority(group)
    return first is not None and right[first.rollout]


def weight_on_right(group: KeptGroup, right: Sequence[bool]) -> float | None:
    """The sum of w_j over the classes whose first rollout is right; None where there are classes without weights."""
    firsts = {rollout.label: rollout for rollout in reversed(group.rollouts) if rollout.label is not None}
    weights = [(rollout.label_weight, right[rollout.rollout]) for rollout in firsts.values()]
    if any(weight is None for weight, _ in weights):
        return None
    return sum((weight or 0.0 for weight, is_right in weights if is_right), 0.0)
