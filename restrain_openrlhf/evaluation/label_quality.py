"""Was the pseudo-label right? What a run's kept groups were trained towards, counted against gold."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import BaseModel

from restrain_openrlhf.answers.gold import is_right
from restrain_openrlhf.evaluation.estimators import wilson_interval
from restrain_openrlhf.evaluation.prompt_gold import PromptGold
from restrain_openrlhf.records.kept.groups import KeptGroup, KeptRollout

# Advantages that cancel, as those of two equal classes do, leave rounding errors.
NO_SIGNAL = 1e-9
# Of the steps, in tables and pictures.
WINDOWS = 20


def right_rollouts(group: KeptGroup, gold: str) -> tuple[bool, ...]:
    """Whether each rollout's answer is right, by the project's one rule (answers/gold.py); a missing one is wrong."""
    return tuple(is_right(rollout.answer, gold) for rollout in group.rollouts)


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
    return sum((weight or 0.0 for weight, counts in weights if counts), 0.0)


@dataclass(frozen=True)
class GroupFacts:
    """What is counted of one group. `right` is of all its rollouts, `net` is A⁺ + A⁻ of the trained ones, the first."""

    step: int
    size: int
    voters: int
    penalized: bool
    majority_right: bool
    weight_on_right: float | None
    right: tuple[bool, ...]
    net: tuple[float, ...]

    @classmethod
    def of(cls, group: KeptGroup, gold: str) -> Self:
        """The facts of a group, by its prompt's gold answer."""
        right = right_rollouts(group, gold)
        trained = [rollout for rollout in group.rollouts if rollout.trained]
        return cls(
            step=group.step,
            size=group.majority_count,
            voters=group.voters,
            penalized=group.penalized,
            majority_right=majority_is_right(group, right),
            weight_on_right=weight_on_right(group, right),
            right=right,
            net=tuple((rollout.advantage_pos or 0.0) + (rollout.advantage_neg or 0.0) for rollout in trained),
        )

    @property
    def signals(self) -> list[tuple[bool, float]]:
        """Of each trained rollout that is pushed up or down: whether it is right, and its net advantage."""
        pairs = zip(self.right, self.net, strict=False)
        return [(right, net) for right, net in pairs if abs(net) > NO_SIGNAL]


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
        low, high = wilson_interval(sum(group.majority_right for group in groups), len(groups))
        signals = [signal for group in groups for signal in group.signals]
        up, down = [net > 0 for right, net in signals if right], [net < 0 for right, net in signals if not right]
        penalized = [group for group in groups if group.penalized]
        return cls(
            groups=len(groups),
            label_accuracy=sum(group.majority_right for group in groups) / len(groups),
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
            penalized_with_right=sum(any(group.right) for group in penalized),
        )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


class StepMeasures(BaseModel, frozen=True):
    """Of the groups of one step."""

    step: int
    measures: Measures


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


class FalseConfidence(BaseModel, frozen=True):
    """Of the groups whose majority has at least `share` of the voters: how many, and the share that is wrong."""

    share: float
    groups: int
    wrong: float


class LabelQuality(BaseModel, frozen=True):
    """A run's pseudo-labels against gold. Prompts are counted once, groups are visits to them."""

    run: str
    gold: str
    prompts: int
    prompts_without_gold: int
    groups_without_gold: int
    total: Measures
    by_step: tuple[StepMeasures, ...]
    by_window: tuple[WindowMeasures, ...]
    by_size: tuple[SizeMeasures, ...]
    false_confidence: tuple[FalseConfidence, ...]


def label_quality(run: Path, gold: Path, groups: Iterable[KeptGroup], answers: PromptGold) -> LabelQuality:
    """The kept groups of `run` against `answers`, those of the file `gold`.

    Groups without gold are counted and left out. At least one has gold (`gold_for` sees to it).
    """
    facts, prompts, without = [], set(), []
    for group in groups:
        prompts.add(group.prompt_id)
        answer = answers.of(group.prompt)
        if answer is None:
            without.append(group.prompt_id)
        else:
            facts.append(GroupFacts.of(group, answer))
    return LabelQuality(
        run=str(run),
        gold=str(gold),
        prompts=len(prompts),
        prompts_without_gold=len(set(without)),
        groups_without_gold=len(without),
        total=Measures.of(facts),
        by_step=tuple(StepMeasures(step=step, measures=found) for (step,), found in _by(facts, lambda f: (f.step,))),
        by_window=by_window(facts, -(-len({each.step for each in facts}) // WINDOWS)),
        by_size=tuple(
            SizeMeasures(size=size, voters=voters, measures=found)
            for (voters, size), found in _by(facts, lambda f: (f.voters, f.size))
        ),
        false_confidence=false_confidence(facts),
    )


def _by(
    facts: Sequence[GroupFacts], key: Callable[[GroupFacts], tuple[int, ...]]
) -> list[tuple[tuple[int, ...], Measures]]:
    parts: dict[tuple[int, ...], list[GroupFacts]] = defaultdict(list)
    for each in facts:
        parts[key(each)].append(each)
    return [(place, Measures.of(parts[place])) for place in sorted(parts)]


def by_window(facts: Sequence[GroupFacts], size: int) -> tuple[WindowMeasures, ...]:
    """Windows of `size` steps each, but for the last: a step of a few groups alone is mostly noise."""
    steps = sorted({each.step for each in facts})
    windows = [steps[start : start + size] for start in range(0, len(steps), size)]
    ends = {step: (window[0], window[-1]) for window in windows for step in window}
    return tuple(
        WindowMeasures(first=first, last=last, measures=found)
        for (first, last), found in _by(facts, lambda each: ends[each.step])
    )


def false_confidence(facts: Sequence[GroupFacts]) -> tuple[FalseConfidence, ...]:
    """One point for each share that a majority has, from the smallest on."""
    points = []
    for share in sorted({each.size / each.voters for each in facts}):
        sure = [each for each in facts if each.size / each.voters >= share]
        wrong = sum(not each.majority_right for each in sure) / len(sure)
        points.append(FalseConfidence(share=share, groups=len(sure), wrong=wrong))
    return tuple(points)
