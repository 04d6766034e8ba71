"""Puts the diagnosis together: sizes of majorities, where methods learn, common answers, missing ones, reliability."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from restrain_openrlhf.answers import KINDS, MATHEMATICS, AnswerKind, Row, parse_kind
from restrain_openrlhf.answers.kind import PROBLEM
from restrain_openrlhf.answers.votes import EXAMPLES
from restrain_openrlhf.commands.premise.groups import MAX_UNREAD, FrozenPass
from restrain_openrlhf.commands.premise.learning import Bin, Learning, compared, quarters
from restrain_openrlhf.commands.premise.shared import CommonAnswer, common_answers
from restrain_openrlhf.errors import RestrainError
from restrain_openrlhf.evaluation.estimators import ReliabilitySoFar, SizeRow
from restrain_openrlhf.method.settings import CommonSettings


@dataclass(frozen=True)
class GoldAccuracy:
    """Accuracy on the prompts with gold, over all and by the size of the majority. Shares are in [0, 1]."""

    prompts: int
    pass_at_1: float
    majority_right: float
    by_size: tuple[SizeRow, ...]

    @classmethod
    def of(cls, rows: Sequence[SizeRow]) -> "GoldAccuracy | None":
        """The numbers from the rows of all sizes; None if no prompt had gold."""
        if not rows:
            return None
        prompts = sum(row.problems for row in rows)
        right = sum(row.problems * row.majority_accuracy for row in rows)
        return cls(
            prompts, sum(row.problems * row.mean_accuracy for row in rows) / prompts, right / prompts, tuple(rows)
        )


@dataclass(frozen=True)
class Premise:
    """The whole diagnosis. `sizes[m]` counts the prompts whose frozen majority has m of n rollouts, m = 0…n.

    The first of `methods` is the chosen one; `bins` are the majority sizes of `by_size`. `left_out` names the methods
    that cannot be judged from this pass, each with the reason. `unread` are the ends of some responses without an
    answer, if the file has them. `others` are other kinds of answers, with the share of the unread responses that they
    can read.
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
    gold: GoldAccuracy | None
    kind: AnswerKind = MATHEMATICS
    others: dict[str, float] = field(default_factory=dict)

    @property
    def chosen(self) -> Learning:
        return self.methods[0]


def diagnose(frozen: FrozenPass, settings: CommonSettings) -> Premise:
    """Diagnose the frozen rollouts for the method with these settings.

    Raises GroupError, ConfigError or DataError if that method cannot be tried on these groups.
    """
    sizes, unread, missing = Counter[int](), dict[str, Row](), 0.0
    gold = ReliabilitySoFar()
    for group in frozen.groups:
        sizes[group.row.majority_count] += 1
        missing += group.row.missing_share
        unread.update(dict.fromkeys(group.row.unread if len(unread) < MAX_UNREAD else (), group.row.row))
        if group.grades is not None:
            gold.add(group.grades)
    common = common_answers(frozen)
    methods, left_out = compared(frozen, settings, common[0].key if common else None)
    return Premise(
        source=str(frozen.source),
        prompts=frozen.count,
        n=frozen.n,
        group_size=frozen.group_size,
        settings=settings.model_dump(mode="json"),
        sizes=tuple(sizes[size] for size in range(frozen.n + 1)),
        bins=quarters(frozen.n),
        methods=tuple(methods),
        left_out=left_out,
        common=common,
        missing_share=missing / frozen.count,
        unread=tuple(unread)[:EXAMPLES],
        kind=frozen.kind,
        others=other_kinds(frozen.kind, frozen.unread or unread),
        gold=GoldAccuracy.of(gold.rows()),
    )


def other_kinds(kind: AnswerKind, unread: Mapping[str, Row]) -> dict[str, float]:
    """The share of `unread` responses that each other kind recognises.

    The largest share comes first, and of equal shares the narrowest kind; a kind that reads nearly any text comes last.
    Kinds that cannot be tried, because a setting has no default or the rows lack a column, are left out.
    """
    known = list(unread.items())[:MAX_UNREAD]
    shares: dict[str, float] = {}
    for name in sorted(KINDS.keys() - {kind.name}) if known else ():
        with suppress(RestrainError):
            other = parse_kind({"name": name})
            rows = [(text, other.row(row.get(PROBLEM, ""), row)) for text, row in known]
            shares[name] = sum(other.recognises(text, row) for text, row in rows) / len(rows)
    narrow = {name: KINDS[name].narrowness for name in shares}
    order = sorted(shares, key=lambda name: (narrow[name] == 0, -shares[name], -narrow[name]))
    return {name: shares[name] for name in order}
