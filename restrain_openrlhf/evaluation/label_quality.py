"""Was the pseudo-label right? What a run's kept groups were trained towards, counted against gold."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import BaseModel

from restrain_openrlhf.evaluation.estimators import wilson_interval
from restrain_openrlhf.evaluation.prompt_gold import PromptGold
from restrain_openrlhf.records.kept.groups import KeptGroup, KeptRollout

# Advantages that cancel, as those of two equal classes do, leave rounding errors.
NO_SIGNAL = 1e-9
# Of the steps, in tables and pictures.
WINDOWS = 20


def majority(group: KeptGroup) -> KeptRollout | None:
    """The first rollout of the class with most votes, ties in order of appearance; None where there is no class."""
    voted = [rollout for rollout in group.rollouts if rollout.label is not None]
    return min(voted, key=lambda rollout: (-(rollout.class_votes or 0), rollout.label or 0), default=None)


def weight_on_right(group: KeptGroup, right: Sequence[bool]) -> float | None:
    """The sum of w_j over the classes whose first rollout is right; None where there are classes without weights."""
    firsts = {rollout.label: rollout for rollout in reversed(group.rollouts) if rollout.label is not None}
    if any(rollout.label_weight is None for rollout in firsts.values()):
        return None
    return sum((rollout.label_weight or 0.0 for rollout in firsts.values() if right[rollout.rollout]), 0.0)


@dataclass(frozen=True)
class GroupFacts:
    """What is counted of one group, without its texts.

    `right`: whether each rollout's answer is, by the rule of its kind of answer; a missing one is wrong.
    `signals`, of each trained rollout that is pushed up or down: whether it is right, and its A⁺ + A⁻. A group without
    any answer has a wrong majority.
    """

    step: int
    size: int
    voters: int
    penalized: bool
    majority_right: bool
    weight_on_right: float | None
    right: tuple[bool, ...]
    signals: tuple[tuple[bool, float], ...]

    @classmethod
    def of(cls, group: KeptGroup, gold: PromptGold) -> Self:
        """The facts of a group whose prompt has a gold answer."""
        right = tuple(bool(gold.right(group.prompt, rollout.answer)) for rollout in group.rollouts)
        first = majority(group)
        trained = [rollout for rollout in group.rollouts if rollout.trained]
        net = [(rollout.advantage_pos or 0.0) + (rollout.advantage_neg or 0.0) for rollout in trained]
        return cls(
            step=group.step,
            size=group.majority_count,
            voters=group.voters,
            penalized=group.penalized,
            majority_right=first is not None and right[first.rollout],
            weight_on_right=weight_on_right(group, right),
            right=right,
            signals=tuple(pair for pair in zip(right, net, strict=False) if abs(pair[1]) > NO_SIGNAL),
        )


class Measures(BaseModel, frozen=True):
    """What is counted of some groups. Shares are in [0, 1]; None where there is nothing to take a share of.

    `label_accuracy`: groups whose majority is right, with bounds at 95 % (Wilson). `some_right`: groups with a right
    rollout. `rollout_accuracy`: right rollouts. `weight_on_right`: mean over groups of Σ w_j of right answers.
    `reward_accuracy`: of the `signals`, trained rollouts with a net advantage, those that are right and pushed up, or
    wrong and pushed down; `right_pushed_up` and `wrong_pushed_down` are shares of the right and of the wrong ones.
    `penalized` counts groups, `penalized_with_right` those of them with a right rollout.
    """

    groups: int
    label_accuracy: float
    label_low: float
    label_high: float
    some_right: float
    rollout_accuracy: float
    weight_on_right: float | None
    signals: int
    reward_accuracy: float | None
    right_pushed_up: float | None
    wrong_pushed_down: float | None
    penalized: int
    penalized_with_right: int

    @classmethod
    def of(cls, groups: Sequence[GroupFacts]) -> Self:
        """Of one group or more."""
        majorities = [group.majority_right for group in groups]
        low, high = wilson_interval(sum(majorities), len(groups))
        signals = [signal for group in groups for signal in group.signals]
        up, down = [net > 0 for right, net in signals if right], [net < 0 for right, net in signals if not right]
        penalized = [any(group.right) for group in groups if group.penalized]
        return cls(
            groups=len(groups),
            label_accuracy=sum(majorities) / len(groups),
            label_low=low,
            label_high=high,
            some_right=sum(any(group.right) for group in groups) / len(groups),
            rollout_accuracy=sum(sum(group.right) for group in groups) / sum(len(group.right) for group in groups),
            weight_on_right=_mean([each for group in groups if (each := group.weight_on_right) is not None]),
            signals=len(signals),
            reward_accuracy=_mean([*up, *down]),
            right_pushed_up=_mean(up),
            wrong_pushed_down=_mean(down),
            penalized=len(penalized),
            penalized_with_right=sum(penalized),
        )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


class WindowMeasures(BaseModel, frozen=True):
    """Of the groups of the kept steps from `first` to `last`."""

    first: int
    last: int
    measures: Measures


class SizeMeasures(BaseModel, frozen=True):
    """Of the groups whose majority has `size` of `voters` rollouts."""

    size: int
    voters: int
    measures: Measures


class LabelQuality(BaseModel, frozen=True):
    """A run's pseudo-labels against gold. Prompts are counted once, groups are visits to them.

    Windows have equally many steps, but for the last: a step of a few groups alone is mostly noise.
    """

    run: str
    gold: str
    prompts: int
    prompts_without_gold: int
    groups_without_gold: int
    total: Measures
    by_window: tuple[WindowMeasures, ...]
    by_size: tuple[SizeMeasures, ...]


def label_quality(run: Path, gold: Path, groups: Iterable[KeptGroup], answers: PromptGold) -> LabelQuality:
    """The kept groups of `run` against `answers`, those of the file `gold`.

    Groups without gold are counted and left out. At least one has gold (`gold_for` sees to it).
    """
    facts, prompts, without = [], set(), []
    for group in groups:
        prompts.add(group.prompt_id)
        if answers.of(group.prompt) is None:
            without.append(group.prompt_id)
        else:
            facts.append(GroupFacts.of(group, answers))
    windows = _windows(sorted({each.step for each in facts}))
    return LabelQuality(
        run=str(run),
        gold=str(gold),
        prompts=len(prompts),
        prompts_without_gold=len(set(without)),
        groups_without_gold=len(without),
        total=Measures.of(facts),
        by_window=tuple(
            WindowMeasures(first=first, last=last, measures=measures)
            for (first, last), measures in _by(facts, lambda each: windows[each.step])
        ),
        by_size=tuple(
            SizeMeasures(size=size, voters=voters, measures=measures)
            for (voters, size), measures in _by(facts, lambda each: (each.voters, each.size))
        ),
    )


def _windows(steps: Sequence[int]) -> dict[int, tuple[int, int]]:
    """The first and the last step of each step's window."""
    size = -(-len(steps) // WINDOWS)
    windows = [steps[start : start + size] for start in range(0, len(steps), size)]
    return {step: (window[0], window[-1]) for window in windows for step in window}


def _by(
    facts: Sequence[GroupFacts], key: Callable[[GroupFacts], tuple[int, int]]
) -> list[tuple[tuple[int, int], Measures]]:
    parts: dict[tuple[int, int], list[GroupFacts]] = defaultdict(list)
    for each in facts:
        parts[key(each)].append(each)
    return [(place, Measures.of(parts[place])) for place in sorted(parts)]
