"""The most common answers across prompts, and when one of them is a shared shortcut."""

from collections import Counter
from dataclasses import dataclass, field

from restrain_openrlhf.answers.votes import representative
from restrain_openrlhf.commands.premise.calibration import LEAST_GOLD, weighted_mean
from restrain_openrlhf.commands.premise.frozen import FrozenGroup

# What makes a common answer a shared shortcut; docs/concepts/premise.md says where these numbers come from. COMMON is a
# share of rollouts, DOMINANT a multiple of the next answer's prompts, and STANDARD_ERRORS of the excess over gold.
COMMON, DOMINANT, STANDARD_ERRORS = 0.10, 4, 3
# An answer to fewer prompts decides nothing.
LEAST_PROMPTS = 5
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


@dataclass
class AnswerSoFar:
    """One common answer while groups are read again: its texts, and the prompts whose majority it is.

    `over` has, for each prompt with gold, the answer's share of the rollouts, less 1 if it is right there, `right`
    whether it is, and `weights` the prompts that each stands for.
    """

    key: str
    texts: Counter[str] = field(default_factory=Counter)
    majorities: int = 0
    right: list[float] = field(default_factory=list)
    over: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    def add(self, group: FrozenGroup) -> None:
        answers = zip(group.keys, group.row.answers, strict=True)
        self.texts.update(text for found, text in answers if found == self.key and text is not None)
        self.majorities += group.majority_key == self.key
        if group.gold is not None:
            is_right = group.is_right(self.key)
            self.right.append(float(is_right))
            self.weights.append(group.weight)
            self.over.append(group.keys.count(self.key) / len(group.keys) - is_right)

    def common(self, share: float, prompts: Counter[str]) -> CommonAnswer:
        """The answer with its share of all rollouts; `prompts` counts the prompts of every answer."""
        excess = None
        if len(self.over) >= LEAST_GOLD:
            excess = Excess(*weighted_mean(self.over, self.weights), weighted_mean(self.right, self.weights)[0])
        return CommonAnswer(
            text=representative(self.texts),
            key=self.key,
            share=share,
            prompts=prompts[self.key],
            next_prompts=max((many for other, many in prompts.items() if other != self.key), default=0),
            majorities=self.majorities,
            excess=excess,
        )
