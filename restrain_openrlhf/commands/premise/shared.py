"""The most common answers across prompts, and which of them is a shared shortcut: what a model says without knowing.

An answer such as "2" is common in mathematics without being a shortcut. If there is gold, gold decides.
docs/concepts/premise.md explains the thresholds.
"""

from array import array
from collections import Counter
from dataclasses import dataclass, field
from math import sqrt
from statistics import mean, stdev

from restrain_openrlhf.answers.votes import representative
from restrain_openrlhf.commands.premise.groups import FrozenGroup, FrozenPass

# Share of rollouts. A shortcut with less did no harm, and in six benchmarks no gold answer has more than .10 of the
# problems.
COMMON = 0.10
# In those benchmarks the most common gold answer has at most twice the problems of the next one. This is twice as much.
DOMINANT = 4
# Gold for fewer prompts, or an answer to fewer prompts, decides nothing.
LEAST_GOLD, LEAST_PROMPTS = 30, 5
# Standard errors. The judged answer was picked because it is common, so two would be too few.
STANDARD_ERRORS = 3
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


def common_answers(frozen: FrozenPass) -> tuple[CommonAnswer, ...]:
    """The three most common answers, the most common first."""
    total, prompts = Counter[str](), Counter[str]()
    for group in frozen.groups:
        keys = [key for key in group.keys if key is not None]
        total.update(keys)
        prompts.update(set(keys))
    found = {key: _SoFar() for key, _ in total.most_common(MOST_COMMON)}
    for group in frozen.groups:
        for key, so_far in found.items():
            so_far.add(group, key)
    return tuple(
        CommonAnswer(
            text=representative(so_far.texts),
            key=key,
            share=total[key] / (frozen.count * frozen.n),
            prompts=prompts[key],
            next_prompts=max((count for other, count in prompts.items() if other != key), default=0),
            majorities=so_far.majorities,
            excess=so_far.excess(),
        )
        for key, so_far in found.items()
    )


@dataclass
class _SoFar:
    """Counts of one answer while groups are read: its texts, and the prompts whose majority it is.

    `over` has, for each prompt with gold, the answer's share of the rollouts, less 1 if it is right there. `right`
    counts the prompts where it is right.
    """

    texts: Counter[str] = field(default_factory=Counter)
    majorities: int = 0
    right: int = 0
    over: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, group: FrozenGroup, key: str) -> None:
        """Add one prompt's group, for the answer with this key."""
        answers = zip(group.keys, group.row.answers, strict=True)
        self.texts.update(text for found, text in answers if found == key and text is not None)
        self.majorities += group.majority_key == key
        if group.gold is not None:
            is_right = group.is_right(key)
            self.right += is_right
            self.over.append(group.keys.count(key) / len(group.keys) - is_right)

    def excess(self) -> Excess | None:
        if len(self.over) < LEAST_GOLD:
            return None
        return Excess(mean(self.over), stdev(self.over) / sqrt(len(self.over)), self.right / len(self.over))
