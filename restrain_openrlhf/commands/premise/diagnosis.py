"""Puts the diagnosis together: sizes of majorities, where methods learn, common answers, missing ones, reliability."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from restrain_openrlhf.answers import KINDS, MATHEMATICS, AnswerKind, Row, parse_kind
from restrain_openrlhf.answers.kind import PROBLEM
from restrain_openrlhf.answers.votes import EXAMPLES
from restrain_openrlhf.commands.premise.groups import FrozenGroup, FrozenPass
from restrain_openrlhf.commands.premise.learning import Bin, Learning, compared, quarters
from restrain_openrlhf.commands.premise.shared import CommonAnswer, common_answers
from restrain_openrlhf.errors import RestrainError
from restrain_openrlhf.evaluation.estimators import SizeRow, reliability
from restrain_openrlhf.method.settings import CommonSettings

# Responses without an answer that other kinds of answers are tried on.
TRIED = 500


@dataclass(frozen=True)
class OfGold:
    """What gold tells of all prompts that have it, and of each majority size that occurs. Shares are in [0, 1]."""

    prompts: int
    pass_at_1: float
    majority_right: float
    by_size: tuple[SizeRow, ...]


@dataclass(frozen=True)
class Premise:
    """The whole diagnosis. `sizes[m]` counts the prompts whose frozen majority has m of n rollouts, m = 0..n.

    The first of `methods` is the chosen one; `bins` are the columns of its `by_size`. `left_out` are methods that this
    pass can say nothing about, and why. `unread` are the ends of some responses without an answer, where the file has
    them. `others`: kinds of answers that read some of what `kind` does not, with their share of it.
    """

    source: str
    prompts: int
    n: int
    group_size: int
    settings: dict[str, Any]
    sizes: tuple[int, ...]
    bins: tuple[Bin, ...]
    methods: tuple[Learning, ...]
    left_out: dict[str, str]
    common: tuple[CommonAnswer, ...]
    missing_share: float
    unread: tuple[str, ...]
    gold: OfGold | None
    kind: AnswerKind = MATHEMATICS
    others: dict[str, float] = field(default_factory=dict)

    @property
    def chosen(self) -> Learning:
        """The method that was asked about."""
        return self.methods[0]


def diagnose(frozen: FrozenPass, settings: CommonSettings) -> Premise:
    """The diagnosis for the method with these settings.

    Raises GroupError, ConfigError or DataError where that method cannot be tried on these groups.
    """
    sizes = Counter(group.row.majority_count for group in frozen.groups)
    common = common_answers(frozen)
    methods, left_out = compared(frozen, settings, common[0].key if common else None)
    return Premise(
        source=str(frozen.source),
        prompts=len(frozen.groups),
        n=frozen.n,
        group_size=frozen.group_size,
        settings=settings.model_dump(mode="json"),
        sizes=tuple(sizes[size] for size in range(frozen.n + 1)),
        bins=quarters(frozen.n),
        methods=tuple(methods),
        left_out=left_out,
        common=common,
        missing_share=sum(group.row.missing_share for group in frozen.groups) / len(frozen.groups),
        unread=tuple(dict.fromkeys(text for group in frozen.groups for text in group.row.unread))[:EXAMPLES],
        kind=frozen.kind,
        others=other_kinds(frozen.kind, frozen.unread),
        gold=_of_gold(frozen.with_gold) if frozen.with_gold else None,
    )


def other_kinds(kind: AnswerKind, unread: Mapping[str, Row]) -> dict[str, float]:
    """The share of `unread` responses that each other kind reads, those that read most first.

    Kinds whose settings have no default, or whose columns the rows lack, cannot be tried, and are left out.
    """
    known = list(unread.items())[:TRIED]
    shares: dict[str, float] = {}
    for name in sorted(KINDS.keys() - {kind.name}) if known else ():
        with suppress(RestrainError):
            other = parse_kind({"name": name})
            rows = [(text, other.row(row.get(PROBLEM, ""), row)) for text, row in known]
            shares[name] = sum(other.extract(text, row) is not None for text, row in rows) / len(rows)
    return dict(sorted(shares.items(), key=lambda each: -each[1]))


def _of_gold(known: tuple[FrozenGroup, ...]) -> OfGold:
    grades = [group.grades for group in known if group.grades is not None]
    right = [verdict for row in grades for verdict in row.correct]
    return OfGold(
        prompts=len(known),
        pass_at_1=sum(right) / len(right),
        majority_right=sum(group.majority_is_right for group in known) / len(known),
        by_size=tuple(reliability(grades)),
    )
