"""Puts the diagnosis together: sizes of majorities, where methods learn, common answers, missing ones, reliability."""

from collections import Counter
from dataclasses import dataclass
from math import ceil
from typing import Any

from pydantic import TypeAdapter

from restrain_openrlhf.evaluation.estimators import wilson_interval
from restrain_openrlhf.evaluation.reliability import SizeRow, reliability
from restrain_openrlhf.method.settings import CommonSettings
from restrain_openrlhf.premise.groups import FrozenPass, Group
from restrain_openrlhf.premise.learning import Bin, Learning, LeftOut, learnings, quarters
from restrain_openrlhf.premise.shared import CommonAnswer, Part, common_answers
from restrain_openrlhf.vote_statistics import EXAMPLES, votes_of


@dataclass(frozen=True)
class Missing:
    """`share` of rollouts have no answer. At `majorities` the missing ones would be the largest class, `as_label`.

    `unread` are the ends of some responses without one, where the file has them.
    """

    share: float
    majorities: Part
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trust:
    """Prompts with gold whose majority has `low` to `high` rollouts: how many are right, at 95 % (Wilson)."""

    low: int
    high: int
    right: Part
    interval: tuple[float, float]


@dataclass(frozen=True)
class Gold:
    """What gold tells of all prompts that have it. `unsure` are majorities below half of the rollouts.

    `large` are the others but the unanimous ones, which teach nothing. `by_size` has every size that occurs, `at_least`
    the majorities of each such size up to n − 1.
    """

    prompts: int
    pass_at_1: float
    right: Trust
    unsure: Trust | None
    large: Trust | None
    by_size: tuple[SizeRow, ...]
    at_least: tuple[Trust, ...]


@dataclass(frozen=True)
class Premise:
    """The whole diagnosis. `sizes[m]` counts the prompts whose frozen majority has m of n rollouts, m = 0..n.

    The first of `methods` is the chosen one; `bins` are the columns of its `by_size`.
    """

    source: str
    prompts: int
    n: int
    group_size: int
    settings: dict[str, Any]
    sizes: tuple[int, ...]
    bins: tuple[Bin, ...]
    methods: tuple[Learning, ...]
    left_out: tuple[LeftOut, ...]
    common: tuple[CommonAnswer, ...]
    missing: Missing
    gold: Gold | None

    @property
    def chosen(self) -> Learning:
        """The method that was asked about."""
        return self.methods[0]

    def json(self) -> dict[str, Any]:
        """All numbers, as JSON has them."""
        document: dict[str, Any] = TypeAdapter(Premise).dump_python(self, mode="json")
        return document


def diagnose(frozen: FrozenPass, settings: CommonSettings) -> Premise:
    """The diagnosis for the method with these settings.

    Raises GroupError, ConfigError or DataError where that method cannot be tried on these groups.
    """
    sizes = Counter(group.row.majority_count for group in frozen.groups)
    common = common_answers(frozen)
    methods, left_out = learnings(frozen, settings, common[0].key if common else None)
    return Premise(
        source=str(frozen.source),
        prompts=len(frozen.groups),
        n=frozen.n,
        group_size=frozen.group_size,
        settings=settings.model_dump(mode="json"),
        sizes=tuple(sizes[size] for size in range(frozen.n + 1)),
        bins=quarters(frozen.n),
        methods=methods,
        left_out=left_out,
        common=common,
        missing=_missing(frozen),
        gold=_gold(frozen),
    )


def _missing(frozen: FrozenPass) -> Missing:
    shares = [group.row.missing_share for group in frozen.groups]
    largest = [votes_of(group.row.answers).majority_count < group.row.answers.count(None) for group in frozen.groups]
    unread = dict.fromkeys(text for group in frozen.groups for text in group.row.unread)
    return Missing(sum(shares) / len(shares), Part(sum(largest), len(largest)), tuple(unread)[:EXAMPLES])


def _gold(frozen: FrozenPass) -> Gold | None:
    known = frozen.with_gold
    grades = [group.grades for group in known if group.grades is not None]
    if not grades:
        return None
    by_size = reliability(grades)
    n, half, right = frozen.n, ceil(frozen.n / 2), _trust(known, 0, frozen.n)
    assert right is not None, "there is a prompt with gold"
    at_least = [_trust(known, row.size, n - 1) for row in by_size]
    return Gold(
        prompts=len(known),
        pass_at_1=sum(sum(row.correct) for row in grades) / (len(grades) * n),
        right=right,
        unsure=_trust(known, 0, half - 1),
        large=_trust(known, half, n - 1),
        by_size=tuple(by_size),
        at_least=tuple(one for one in at_least if one is not None),
    )


def _trust(groups: tuple[Group, ...], low: int, high: int) -> Trust | None:
    """None where no majority has such a size."""
    right = [group.majority_is_right for group in groups if low <= group.row.majority_count <= high]
    if not right:
        return None
    count = sum(verdict is True for verdict in right)
    return Trust(low, high, Part(count, len(right)), wilson_interval(count, len(right)))
