"""`restrain analyze`: counts with gold in kept rollouts how often a run's pseudo-labels were right."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from math import fsum
from operator import add
from pathlib import Path
from typing import Annotated, NamedTuple, Self

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from restrain_openrlhf.commands.options import GOLD
from restrain_openrlhf.evaluation.estimators import wilson_interval
from restrain_openrlhf.evaluation.prompt_gold import PromptGold, gold_for
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.kept import KeptGroup, kept_prompts, read_kept

# Advantages that cancel out, such as those of two equal classes, leave rounding errors below this.
NO_SIGNAL = 1e-9
# The number of windows into which steps are divided in tables and pictures.
WINDOWS = 20


def majority(group: KeptGroup) -> int | None:
    """The class with the most votes, of tied classes the first to appear; None if there is no class."""
    votes = {rollout.label: rollout.class_votes or 0 for rollout in group.rollouts if rollout.label is not None}
    return min(votes, key=lambda label: (-votes[label], label), default=None)


def right_by_class(group: KeptGroup, right: Sequence[bool]) -> dict[int, float]:
    """The share of right rollouts in each class; `right` has one value for each rollout, in their order.

    It is 0 or 1 where equal answers are equally right, as in mathematics. For embeddings, judges and programs it can be
    in between.
    """
    found: dict[int, list[bool]] = {}
    for rollout, is_right in zip(group.rollouts, right, strict=True):
        if rollout.label is not None:
            found.setdefault(rollout.label, []).append(is_right)
    return {label: sum(each) / len(each) for label, each in found.items()}


def weight_on_right(group: KeptGroup, shares: Mapping[int, float]) -> float | None:
    """The sum over classes of w_j times the right share of class j; None if a class has no weight."""
    weights = {rollout.label: rollout.label_weight for rollout in group.rollouts if rollout.label is not None}
    known = [(weight, shares[label]) for label, weight in weights.items() if weight is not None]
    return fsum(weight * share for weight, share in known) if len(known) == len(weights) else None


class Measures(BaseModel, frozen=True):
    """What is measured on some groups. Shares are in [0, 1], and None if there is nothing to take a share of.

    `label_accuracy` is the share of groups whose majority is right, with 95 % bounds (Wilson); a class counts as right
    to the share of its right rollouts. `some_right` is the share of groups with a right rollout, and `rollout_accuracy`
    that of right rollouts. `weight_on_right` is the mean over groups of the function of that name.

    `signals` counts trained rollouts with a net advantage. `reward_accuracy` is the share of them that are right and
    pushed up, or wrong and pushed down; `right_pushed_up` and `wrong_pushed_down` are shares of the right ones and of
    the wrong ones. `penalized` counts groups, and `penalized_with_right` those of them with a right rollout.
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


class Counts(NamedTuple):
    """The counts from which `Measures` are computed, of one group or of several.

    A missing answer is wrong, and a group without any answer has a wrong majority. `weight` is the sum of
    `weight_on_right` over the `weighted` groups, whose classes have weights. `right_up` to `wrong_down` count the
    trained rollouts that are pushed up or down, by whether they are right.
    """

    groups: int = 0
    majorities_right: float = 0.0
    some_right: int = 0
    rollouts: int = 0
    rollouts_right: int = 0
    weighted: int = 0
    weight: float = 0.0
    right_up: int = 0
    right_down: int = 0
    wrong_up: int = 0
    wrong_down: int = 0
    penalized: int = 0
    penalized_with_right: int = 0

    @classmethod
    def of(cls, group: KeptGroup, gold: PromptGold) -> Self:
        """The counts of a group whose prompt has a gold answer. The kind of answer decides what is right."""
        right = [bool(gold.right(group.prompt, rollout.answer)) for rollout in group.rollouts]
        shares, label = right_by_class(group, right), majority(group)
        weight = weight_on_right(group, shares)
        trained = [rollout for rollout in group.rollouts if rollout.trained]
        net = [(rollout.advantage_pos or 0.0) + (rollout.advantage_neg or 0.0) for rollout in trained]
        signals = Counter(
            (is_right, each > 0) for is_right, each in zip(right, net, strict=False) if abs(each) > NO_SIGNAL
        )
        return cls(
            groups=1,
            majorities_right=0.0 if label is None else shares[label],
            some_right=int(any(right)),
            rollouts=len(right),
            rollouts_right=sum(right),
            weighted=int(weight is not None),
            weight=weight or 0.0,
            right_up=signals[True, True],
            right_down=signals[True, False],
            wrong_up=signals[False, True],
            wrong_down=signals[False, False],
            penalized=int(group.penalized),
            penalized_with_right=int(group.penalized and any(right)),
        )

    def plus(self, other: Self) -> Self:
        return type(self)(*map(add, self, other))

    def measures(self) -> Measures:
        """The measures of these counts, which must include a group."""
        low, high = wilson_interval(self.majorities_right, self.groups)
        right, wrong = self.right_up + self.right_down, self.wrong_up + self.wrong_down
        return Measures(
            groups=self.groups,
            label_accuracy=self.majorities_right / self.groups,
            label_low=low,
            label_high=high,
            some_right=self.some_right / self.groups,
            rollout_accuracy=self.rollouts_right / self.rollouts,
            weight_on_right=_share(self.weight, self.weighted),
            signals=right + wrong,
            reward_accuracy=_share(self.right_up + self.wrong_down, right + wrong),
            right_pushed_up=_share(self.right_up, right),
            wrong_pushed_down=_share(self.wrong_down, wrong),
            penalized=self.penalized,
            penalized_with_right=self.penalized_with_right,
        )


def _share(part: float, of: int) -> float | None:
    return part / of if of else None


class WindowMeasures(BaseModel, frozen=True):
    """The measures of the groups of kept steps from `first` to `last`."""

    first: int
    last: int
    measures: Measures


class SizeMeasures(BaseModel, frozen=True):
    """The measures of the groups whose majority has `size` of `voters` rollouts."""

    size: int
    voters: int
    measures: Measures


class LabelQuality(BaseModel, frozen=True):
    """A run's pseudo-labels against gold, graded as in evaluations or, if `exact`, by the equality of votes.

    A prompt is counted once, and its groups are visits to it. Steps are joined to windows, because a step of a few
    groups is mostly noise.
    """

    run: str
    gold: str
    exact: bool
    prompts: int
    prompts_without_gold: int
    groups_without_gold: int
    total: Measures
    by_window: tuple[WindowMeasures, ...]
    by_size: tuple[SizeMeasures, ...]


def label_quality(run: Path, gold: Path, groups: Iterable[KeptGroup], answers: PromptGold) -> LabelQuality:
    """Compare the kept groups of `run` with `answers`, which are those of the file `gold`.

    Groups without gold are counted and left out. At least one must have gold, which `gold_for` ensures.
    """
    by_step: dict[int, Counts] = defaultdict(Counts)
    by_size: dict[tuple[int, int], Counts] = defaultdict(Counts)
    prompts, without = set(), Counter[str]()
    for group in groups:
        prompts.add(group.prompt_id)
        if answers.of(group.prompt) is None:
            without[group.prompt_id] += 1
            continue
        found = Counts.of(group, answers)
        by_step[group.step] = by_step[group.step].plus(found)
        size = group.voters, group.majority_count
        by_size[size] = by_size[size].plus(found)
    return LabelQuality(
        run=str(run),
        gold=str(gold),
        exact=answers.exact,
        prompts=len(prompts),
        prompts_without_gold=len(without),
        groups_without_gold=without.total(),
        total=reduce(Counts.plus, by_step.values(), Counts()).measures(),
        by_window=tuple(_windows(by_step)),
        by_size=tuple(
            SizeMeasures(size=size, voters=voters, measures=by_size[voters, size].measures())
            for voters, size in sorted(by_size)
        ),
    )


def _windows(by_step: Mapping[int, Counts]) -> Iterator[WindowMeasures]:
    """Windows with equally many steps each; the last may have fewer."""
    steps = sorted(by_step)
    size = -(-len(steps) // WINDOWS)
    for start in range(0, len(steps), size):
        window = steps[start : start + size]
        counts = reduce(Counts.plus, (by_step[step] for step in window))
        yield WindowMeasures(first=window[0], last=window[-1], measures=counts.measures())


EXACTLY = ", right as votes are equal (--exact)"
COLUMNS = ("groups", "majority right", "some right", "signal agrees", "weight on right")


def analyze(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, with kept rollouts.")],
    gold: Annotated[Path, typer.Option(help=GOLD)],
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Count an answer as right only if it would vote for the same class as gold. Otherwise it is graded as "
            "in evaluations, with their tolerance.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Count with gold: were the majorities that a run trained on right, and did training reward right rollouts?"""
    next(read_kept(run))
    answers = gold_for(kept_prompts(run), gold, RunFolder(run).flags(), RunFolder(run).kind, exact=exact)
    found = label_quality(run, gold, read_kept(run), answers)
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
        return
    by_size = [(f"{row.size} of {row.voters}", row.measures) for row in found.by_size]
    by_step = [
        (str(row.first) if row.first == row.last else f"{row.first} to {row.last}", row.measures)
        for row in found.by_window
    ]
    console = Console(soft_wrap=True, highlight=False)
    console.print(_totals(found))
    console.print(_parts("by its size", "majority", by_size))
    console.print(_parts("by step", "step", by_step))


def _totals(found: LabelQuality) -> Table:
    table = Table("of the kept rollouts", "", title=f"{found.run}{EXACTLY * found.exact}", title_justify="left")
    total = found.total
    bounds = f"[{_percent(total.label_low)}, {_percent(total.label_high)}]"
    rows = {
        "groups with gold, without": f"{total.groups}, {found.groups_without_gold}",
        "prompts without gold, of all": f"{found.prompts_without_gold} of {found.prompts}",
        "label accuracy: the majority is right": f"{_percent(total.label_accuracy)} {bounds}",
        "some rollout is right": _percent(total.some_right),
        "rollouts that are right": _percent(total.rollout_accuracy),
        "reward accuracy: the signal's sign agrees": f"{_percent(total.reward_accuracy)} of {total.signals} rollouts",
        "right rollouts pushed up": _percent(total.right_pushed_up),
        "wrong rollouts pushed down": _percent(total.wrong_pushed_down),
        "weight on right answers": _percent(total.weight_on_right),
        "penalised groups that had a right rollout": f"{total.penalized_with_right} of {total.penalized}",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _parts(title: str, of: str, rows: Sequence[tuple[str, Measures]]) -> Table:
    table = Table(of, *COLUMNS, title=title, title_justify="left")
    for name, found in rows:
        shares = (found.label_accuracy, found.some_right, found.reward_accuracy, found.weight_on_right)
        table.add_row(name, str(found.groups), *map(_percent, shares))
    return table


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"
