"""The most common answers across prompts, and the rule that tells a shared shortcut from an answer that is often right.

A shortcut is what a model says where it does not know. "2" on mathematics, or each letter of a multiple choice, is
common without being one. So a common answer is a shortcut for a `Reason` alone, and where there is gold, gold decides.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import sqrt
from operator import and_

import numpy as np

from restrain_openrlhf.answers import canonical_key
from restrain_openrlhf.commands.premise.groups import FrozenGroup, FrozenPass

# An answer with a smaller share of rollouts is none. The smallest share at which a collapse was seen is .16 (the
# premise task on the real stack), and in six benchmarks no gold answer has more than .10 of the problems.
COMMON = 0.10
# In those benchmarks the most common gold answer has at most twice the problems of the next; this is twice that.
DOMINANT = 4
# A majority of so many of the rollouts is sure, a smaller one is not. A shortcut can have more than half of them.
SURE = 3 / 4
# Gold of fewer prompts, or an answer of fewer prompts, decides nothing.
LEAST_GOLD, LEAST_PROMPTS = 30, 5
# The answer that is judged was picked because it is common, so that two standard errors would be too few.
ERRORS = 3
SHOWN = 3


class Reason(Enum):
    """Why a common answer is a shortcut."""

    EVERYWHERE = "given at far more prompts than any other answer"
    WHERE_UNSURE = "the majority where majorities are small, and hardly where they are large"
    NOT_GOLD = "given far more often than it is right"


@dataclass(frozen=True)
class Part:
    """`count` of `of` prompts."""

    count: int
    of: int

    @property
    def share(self) -> float:
        """0 where there are no prompts."""
        return self.count / self.of if self.of else 0.0

    @property
    def variance(self) -> float:
        """Of the share, with one prompt more on either side, so that none of none is not certain."""
        smoothed = (self.count + 1) / (self.of + 2)
        return smoothed * (1 - smoothed) / (self.of + 2)


@dataclass(frozen=True)
class Excess:
    """Share of rollouts with an answer less the share of prompts whose gold it is; mean over prompts, and its error."""

    mean: float
    error: float
    gold: Part


@dataclass(frozen=True)
class CommonAnswer:
    """One answer across prompts, `text` as its first rollout wrote it.

    `share` is of all rollouts, `prompts` those at which some rollout gives it, `next_prompts` the most at which another
    answer is given. `unsure` and `sure` count the prompts whose frozen majority it is, of those with an unsure majority
    and of those with a sure one. `excess` is None where fewer than LEAST_GOLD prompts have gold.
    """

    text: str
    key: str
    share: float
    prompts: int
    next_prompts: int
    unsure: Part
    sure: Part
    excess: Excess | None
    reason: Reason | None = None


def common_answers(frozen: FrozenPass) -> tuple[CommonAnswer, ...]:
    """The three most common answers, and all others with COMMON of the rollouts or more; the most common first."""
    total = Counter(key for group in frozen.groups for key in group.keys if key is not None)
    prompts = Counter(key for group in frozen.groups for key in dict.fromkeys(group.keys) if key is not None)
    rollouts = len(frozen.groups) * frozen.n
    common = sum(count >= COMMON * rollouts for count in total.values())
    ranked = total.most_common(max(SHOWN, common))
    found = [_answer(frozen, key, count / rollouts, prompts) for key, count in ranked]
    return tuple(replace(answer, reason=reason_of(answer)) for answer in found)


def reason_of(answer: CommonAnswer) -> Reason | None:
    """Why it is a shortcut; None: it is not, or nothing here says so."""
    if answer.share < COMMON or answer.prompts < LEAST_PROMPTS:
        return None
    if answer.excess is not None:
        clear = answer.excess.mean >= max(COMMON, ERRORS * answer.excess.error)
        return Reason.NOT_GOLD if clear else None
    if answer.prompts >= DOMINANT * answer.next_prompts:
        return Reason.EVERYWHERE
    difference = answer.unsure.share - answer.sure.share
    error = sqrt(answer.unsure.variance + answer.sure.variance)
    fades = answer.unsure.share >= DOMINANT * answer.sure.share
    return Reason.WHERE_UNSURE if fades and difference >= max(COMMON, ERRORS * error) else None


def _answer(frozen: FrozenPass, key: str, share: float, prompts: Counter[str]) -> CommonAnswer:
    sure = [group.row.majority_count >= SURE * frozen.n for group in frozen.groups]
    has = [group.row.majority is not None and canonical_key(group.row.majority) == key for group in frozen.groups]
    of_sure, all_of_sure = sum(map(and_, sure, has)), sum(sure)
    texts = (pair for group in frozen.groups for pair in zip(group.keys, group.row.answers, strict=True))
    return CommonAnswer(
        text=next(text for found, text in texts if found == key and text is not None),
        key=key,
        share=share,
        prompts=prompts[key],
        next_prompts=max((count for other, count in prompts.items() if other != key), default=0),
        unsure=Part(sum(has) - of_sure, len(has) - all_of_sure),
        sure=Part(of_sure, all_of_sure),
        excess=_excess(frozen.with_gold, key),
    )


def _excess(groups: Sequence[FrozenGroup], key: str) -> Excess | None:
    if len(groups) < LEAST_GOLD:
        return None
    is_gold = [canonical_key(group.gold) == key for group in groups if group.gold is not None]
    over = np.array([np.mean([found == key for found in group.keys]) for group in groups]) - np.array(is_gold, float)
    return Excess(float(over.mean()), float(over.std(ddof=1)) / sqrt(len(over)), Part(sum(is_gold), len(is_gold)))
