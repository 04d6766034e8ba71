"""The diagnosis: sizes of majorities, where each method would learn, common answers, missing ones, reliability."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np

from restrain_openrlhf.answers import AnswerKind
from restrain_openrlhf.answers.shown import KindShare, Reading
from restrain_openrlhf.answers.votes import MissingSoFar
from restrain_openrlhf.commands.premise.calibration import (
    GoldAccuracy,
    WidthsSoFar,
    chance_of_failure,
)
from restrain_openrlhf.commands.premise.common_answers import MOST_COMMON, AnswerSoFar, CommonAnswer
from restrain_openrlhf.commands.premise.frozen import FrozenGroup, FrozenPass
from restrain_openrlhf.errors import ConfigError, DataError, GroupError
from restrain_openrlhf.evaluation.grade import ReliabilitySoFar
from restrain_openrlhf.method import METHODS, Method, build, parse_settings
from restrain_openrlhf.method.settings import CommonSettings
from restrain_openrlhf.method.types import Floats
from restrain_openrlhf.scoring import score_group


@dataclass(frozen=True)
class Learning:
    """One method on the groups of a first training step. Advantages are A⁺ + A⁻ with u_x; shares are in [0, 1].

    `by_size[b]` is the share of squared advantage on the prompts of bin b, and `penalized` the share on penalised
    groups. `on_wrong` is the share on prompts whose majority is wrong, among the groups that have gold and are not
    penalised. A push is the sum of (A − the group's mean A) over some rollouts, relative to the sum of |A| over all, so
    0.5 at most: `shared_push` over rollouts with the most common answer, `right_push` over right rollouts, in groups
    with gold. `fails` is its `chance_of_failure`, None for a method that
    needs gold.
    """

    name: str
    prompts: int
    prompts_penalized: float
    mean_advantage: float
    by_size: tuple[float, ...]
    penalized: float
    shared_push: float | None
    right_push: float | None
    on_wrong: float | None
    fails: float | None
    reads_gold: bool


@dataclass(frozen=True)
class Premise:
    """The whole diagnosis. `sizes[m]` counts the prompts whose frozen majority has m of n rollouts, m = 0…n.

    The first of `methods` is the chosen one; `bins` are the majority sizes of `by_size`. `left_out` names the methods
    that cannot be judged from this pass, each with the reason. `unread` are the ends of some responses without an
    answer, `read` shows what is read in some groups, and `kinds` says how much other kinds would read, if the file
    has responses. `better_sigma` is that of gold, if it is known and another one.
    """

    prompts: int
    n: int
    group_size: int
    settings: dict[str, Any]
    sizes: tuple[int, ...]
    bins: tuple[tuple[int, int], ...]
    methods: tuple[Learning, ...]
    left_out: dict[str, str]
    common: tuple[CommonAnswer, ...]
    missing_share: float
    unread: tuple[str, ...]
    read: tuple[Reading, ...]
    kinds: tuple[KindShare, ...]
    gold: GoldAccuracy | None
    better_sigma: float | None
    kind: AnswerKind

    @property
    def chosen(self) -> Learning:
        return self.methods[0]


def diagnose(frozen: FrozenPass, settings: CommonSettings) -> Premise:
    """Diagnose the frozen rollouts for the method with these settings.

    Raises GroupError, ConfigError or DataError if that method cannot be tried on these groups.
    """
    common = [AnswerSoFar(key) for key, _ in frozen.totals.most_common(MOST_COMMON)]
    methods = Comparison(settings, frozen.shares, frozen.n, common[0].key if common else None)
    sizes, prompts, missing = Counter[int](), Counter[str](), MissingSoFar()
    gold, widths = ReliabilitySoFar(frozen.n), WidthsSoFar(settings)
    for place, group in enumerate(frozen.groups):
        sizes[group.row.majority_count] += 1
        prompts.update({key for key in group.keys if key is not None})
        missing.add(group.row.shown, group.row.classes, group.row.unread)
        methods.add(place, group)
        for answer in common:
            answer.add(group)
        if group.grades is not None:
            gold.add(group.grades, group.weight)
            widths.add(group)
    count = len(frozen.shares)
    return Premise(
        prompts=count,
        n=frozen.n,
        group_size=frozen.group_size,
        settings=settings.model_dump(mode="json"),
        sizes=tuple(sizes[size] for size in range(frozen.n + 1)),
        bins=quarters(frozen.n),
        methods=tuple(methods.learnings()),
        left_out=methods.left_out,
        common=tuple(answer.common(frozen.totals[answer.key] / (count * frozen.n), prompts) for answer in common),
        missing_share=missing.share,
        unread=tuple(missing.unread),
        read=tuple(missing.sample.shown(frozen.kind)),
        kinds=tuple(missing.sample.compared(frozen.kind)),
        kind=frozen.kind,
        gold=GoldAccuracy.of(gold.rows()),
        better_sigma=widths.better(),
    )


def quarters(n: int) -> tuple[tuple[int, int], ...]:
    """Sizes 0 to n in four bins of (nearly) equal width, fewer for n < 4: the least and the largest size of each."""
    edges = sorted({-1, *(ceil(n * quarter / 4) for quarter in range(1, 5))})
    return tuple((low + 1, high) for low, high in pairwise(edges))


class Comparison:
    """The chosen method and all others at their defaults, to which groups of n frozen rollouts are shown one by one.

    `shares` are the majority shares of all prompts, and `shared` is the key of the most common answer. `left_out` says
    for each method that does not apply why. Raises GroupError if the chosen method draws its groups in another way, and
    DataError if it trains on none of the prompts.
    """

    def __init__(self, settings: CommonSettings, shares: Sequence[float], n: int, shared: str | None) -> None:
        self.chosen, self.left_out = settings.name, dict[str, str]()
        self._tried = dict[str, _Sums]()
        for name in dict.fromkeys((self.chosen, *METHODS)):
            with self._leaving_out(name):
                chosen = settings if name == self.chosen else parse_settings({"name": name})
                # What votes teach is asked, also for a configuration that trains on gold where it is given.
                method = replace(build(chosen), on_gold=None)
                trained_on = frozenset(method.selection(shares)) if method.selection else None
                self._tried[name] = _Sums(method, trained_on, shared, np.zeros(n + 1))

    def add(self, place: int, group: FrozenGroup) -> None:
        """Show the group of one prompt to all methods."""
        for name in list(self._tried):
            with self._leaving_out(name):
                self._tried[name].add(place, group)

    def learnings(self) -> list[Learning]:
        """What each method that applies would learn, the chosen one first."""
        found = []
        for name, sums in list(self._tried.items()):
            with self._leaving_out(name):
                found.append(sums.learning(name))
        return found

    @contextmanager
    def _leaving_out(self, name: str) -> Iterator[None]:
        try:
            yield
        except (ConfigError, DataError, GroupError) as error:
            if name == self.chosen:
                raise
            self.left_out[name] = str(error)
            self._tried.pop(name, None)


@dataclass
class _Sums:
    """Sums over the groups that one method trains on. `size` sums |A|, and `squares` A² for each size of the majority.

    Of groups with gold all is weighted; `labelled` has what `chance_of_failure` reads of each.
    """

    method: Method
    trained_on: frozenset[int] | None
    shared: str | None
    squares: Floats
    prompts: int = 0
    rollouts: int = 0
    size: float = 0.0
    size_with_gold: float = 0.0
    to_shared: float = 0.0
    prompts_penalized: int = 0
    penalized: float = 0.0
    labelled: list[tuple[float, float, float]] = field(default_factory=list)

    def add(self, place: int, group: FrozenGroup) -> None:
        """Add a prompt's group, unless the method does not train on it."""
        row, gold = group.row, group.gold
        if (self.trained_on is not None and place not in self.trained_on) or (gold is None and self.method.needs_gold):
            return
        score = score_group(self.method, group.group, row, gold, str(row.id), None, group.kind, row.row)
        step, weight = group.step, group.weight
        net = score.pair.net
        square, size = float(np.sum(net**2)), float(np.abs(net).sum())
        self.prompts += 1
        self.rollouts += net.size
        self.size += size
        self.squares[row.majority_count] += square
        self.to_shared += _push(net, [key == self.shared for key in step.keys])
        if step.grades is not None:
            push, believed = weight * _push(net, step.grades.correct), weight * square * (score.penalized < 1)
            self.size_with_gold += weight * size
            self.labelled.append((believed, believed * (not group.majority_is_right), push))
        if score.penalized == 1:
            self.prompts_penalized += 1
            self.penalized += square

    def learning(self, name: str) -> Learning:
        """The shares. Raises DataError if the method trained on no group."""
        if not self.prompts:
            raise DataError(
                "It trains on none of these prompts: it reads gold, or selects by a share that none reaches."
            )
        total = float(self.squares.sum()) or 1.0
        believed, on_wrong, to_right = np.sum(self.labelled, axis=0).tolist() if self.labelled else (0.0, 0.0, 0.0)
        in_bins = [self.squares[low : high + 1] for low, high in quarters(len(self.squares) - 1)]
        return Learning(
            name=name,
            prompts=self.prompts,
            prompts_penalized=self.prompts_penalized / self.prompts,
            mean_advantage=self.size / self.rollouts,
            by_size=tuple(float(part.sum()) / total for part in in_bins),
            penalized=self.penalized / total,
            shared_push=self.to_shared / self.size if self.shared is not None and self.size else None,
            right_push=to_right / self.size_with_gold if self.size_with_gold else None,
            on_wrong=on_wrong / believed if believed else None,
            fails=None if self.method.needs_gold else chance_of_failure(self.labelled),
            reads_gold=self.method.needs_gold,
        )


def _push(net: Floats, chosen: Sequence[bool]) -> float:
    """The sum of (A − the group's mean A) over chosen rollouts. `chosen` may go on beyond the group's end."""
    return float((net - net.mean())[np.array(chosen[: net.size])].sum())
