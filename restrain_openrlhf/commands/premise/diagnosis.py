"""Puts the diagnosis together: sizes of majorities, where methods learn, common answers, missing ones, reliability."""

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import mean, stdev
from typing import Any

from restrain_openrlhf.answers import AnswerKind
from restrain_openrlhf.answers.votes import EXAMPLES, representative
from restrain_openrlhf.commands.premise.frozen import FrozenGroup, FrozenPass
from restrain_openrlhf.commands.premise.learning import Comparison, Learning, quarters
from restrain_openrlhf.evaluation.grade import ReliabilitySoFar, SizeRow
from restrain_openrlhf.method.settings import CommonSettings

# What makes a common answer a shared shortcut; docs/concepts/premise.md says where these numbers come from. COMMON is a
# share of rollouts, DOMINANT a multiple of the next answer's prompts, and STANDARD_ERRORS of the excess over gold.
COMMON, DOMINANT, STANDARD_ERRORS = 0.10, 4, 3
# Gold for fewer prompts, or an answer to fewer prompts, decides nothing.
LEAST_GOLD, LEAST_PROMPTS = 30, 5
MOST_COMMON = 3


@dataclass(frozen=True)
class Excess:
    """How much more often an answer is given than it is right, as a difference of shares in [-1, 1].

    `mean` is the mean over prompts with gold, `error` its standard error. `gold_share` is the share of these prompts
    whose gold answer it is.
    """

    mean: float
    error: float
    gold_share: float


@dataclass(frozen=True)
class CommonAnswer:
    """One answer across prompts. `text` is its most frequent text.

    `share` is its share of all rollouts. `prompts` counts the prompts where some rollout gives it, `next_prompts` the
    prompts of the next answer by that count, and `majorities` those whose frozen majority it is. `excess` is None if
    fewer than LEAST_GOLD prompts have gold.
    """

    text: str
    key: str
    share: float
    prompts: int
    next_prompts: int
    majorities: int
    excess: Excess | None

    @property
    def is_shortcut(self) -> bool:
        """Whether it is given far more often than it is right; without gold, at far more prompts than any other."""
        if self.share < COMMON or self.prompts < LEAST_PROMPTS:
            return False
        if self.excess is not None:
            return self.excess.mean >= max(COMMON, STANDARD_ERRORS * self.excess.error)
        return self.prompts >= DOMINANT * self.next_prompts


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
        rollouts = sum(row.problems * row.mean_accuracy for row in rows)
        return cls(prompts, rollouts / prompts, right / prompts, tuple(rows))


@dataclass(frozen=True)
class Premise:
    """The whole diagnosis. `sizes[m]` counts the prompts whose frozen majority has m of n rollouts, m = 0…n.

    The first of `methods` is the chosen one; `bins` are the majority sizes of `by_size`. `left_out` names the methods
    that cannot be judged from this pass, each with the reason. `unread` are the ends of some responses without an
    answer, if the file has them.
    """

    source: str
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
    gold: GoldAccuracy | None
    kind: AnswerKind

    @property
    def chosen(self) -> Learning:
        return self.methods[0]


def diagnose(frozen: FrozenPass, settings: CommonSettings) -> Premise:
    """Diagnose the frozen rollouts for the method with these settings.

    Raises GroupError, ConfigError or DataError if that method cannot be tried on these groups.
    """
    votes = _Votes()
    for group in frozen.groups:
        votes.add(group)
    common = [_Answer(key) for key, _ in votes.rollouts.most_common(MOST_COMMON)]
    methods = Comparison(settings, votes.shares, frozen.n, common[0].key if common else None)
    gold = ReliabilitySoFar(frozen.n)
    for place, group in enumerate(frozen.groups):
        methods.add(place, group)
        for answer in common:
            answer.add(group)
        if group.grades is not None:
            gold.add(group.grades)
    return Premise(
        source=str(frozen.source),
        prompts=frozen.count,
        n=frozen.n,
        group_size=frozen.group_size,
        settings=settings.model_dump(mode="json"),
        sizes=tuple(votes.sizes[size] for size in range(frozen.n + 1)),
        bins=quarters(frozen.n),
        methods=tuple(methods.learnings()),
        left_out=methods.left_out,
        common=tuple(answer.common(votes, frozen) for answer in common),
        missing_share=votes.missing / frozen.count,
        unread=tuple(votes.unread)[:EXAMPLES],
        kind=frozen.kind,
        gold=GoldAccuracy.of(gold.rows()),
    )


@dataclass
class _Votes:
    """What the first reading counts: majority sizes, and for each answer its rollouts and its prompts."""

    sizes: Counter[int] = field(default_factory=Counter)
    rollouts: Counter[str] = field(default_factory=Counter)
    prompts: Counter[str] = field(default_factory=Counter)
    shares: "array[float]" = field(default_factory=lambda: array("d"))
    missing: float = 0.0
    unread: dict[str, None] = field(default_factory=dict)

    def add(self, group: FrozenGroup) -> None:
        row, keys = group.row, [key for key in group.keys if key is not None]
        self.sizes[row.majority_count] += 1
        self.rollouts.update(keys)
        self.prompts.update(set(keys))
        self.shares.append(row.majority_share)
        self.missing += row.missing_share
        self.unread.update(dict.fromkeys(row.unread if len(self.unread) < EXAMPLES else ()))


@dataclass
class _Answer:
    """One common answer while groups are read again: its texts, and the prompts whose majority it is.

    `over` has, for each prompt with gold, the answer's share of the rollouts, less 1 if it is right there. `right`
    counts the prompts where it is right.
    """

    key: str
    texts: Counter[str] = field(default_factory=Counter)
    majorities: int = 0
    right: int = 0
    over: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, group: FrozenGroup) -> None:
        answers = zip(group.keys, group.row.answers, strict=True)
        self.texts.update(text for found, text in answers if found == self.key and text is not None)
        self.majorities += group.majority_key == self.key
        if group.gold is not None:
            is_right = group.is_right(self.key)
            self.right += is_right
            self.over.append(group.keys.count(self.key) / len(group.keys) - is_right)

    def common(self, votes: _Votes, frozen: FrozenPass) -> CommonAnswer:
        count = len(self.over)
        known = count >= LEAST_GOLD
        return CommonAnswer(
            text=representative(self.texts),
            key=self.key,
            share=votes.rollouts[self.key] / (frozen.count * frozen.n),
            prompts=votes.prompts[self.key],
            next_prompts=max((count for other, count in votes.prompts.items() if other != self.key), default=0),
            majorities=self.majorities,
            excess=Excess(mean(self.over), stdev(self.over) / sqrt(count), self.right / count) if known else None,
        )
