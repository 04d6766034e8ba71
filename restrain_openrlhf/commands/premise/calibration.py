"""What the gold answers of some prompts say about all: how often majorities are right, κ, σ, and the chance to fail.

Where the prompts with gold were not drawn with equal chances (`restrain label`), each counts for 1 / its chance: shares
are Hájek's ratio estimates (1971), with intervals of Kish's effective sample size. A prompt without a known chance
counts once, as in a random sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from restrain_openrlhf.commands.premise.frozen import FrozenGroup
from restrain_openrlhf.evaluation.grade import SizeRow
from restrain_openrlhf.method.settings import CommonSettings
from restrain_openrlhf.method.types import PromptFacts
from restrain_openrlhf.records.metrics import wilson_interval

# Gold for fewer prompts decides nothing.
LEAST_GOLD = 30
# Share of squared advantage on wrong majorities. Methods with .16 or less learned; with .34 or more they collapsed, or
# gained little from stored labels; one with .22 ended in between.
WRONG_SHARE = 0.20
# Widths that are tried beside the given one, and how much a log-likelihood must gain (95 %, chi-squared / 2).
WIDTHS, GAIN = (0.1, 0.25, 0.5, 1.0, 2.0), 1.92
RESAMPLES = 2000


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
        stand_for = sum(row.weight for row in rows)
        right = sum(row.weight * row.majority_accuracy for row in rows) / stand_for
        rollouts = sum(row.weight * row.mean_accuracy for row in rows) / stand_for
        return cls(sum(row.problems for row in rows), rollouts, right, tuple(rows))


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> tuple[float, float]:
    """The mean of two or more prompts' values and its standard error (Hájek's ratio, to first order)."""
    x, w = np.array(values), np.array(weights)
    mean = float(w @ x / w.sum())
    spread = float(np.sum((w * (x - mean)) ** 2)) * len(x) / (len(x) - 1)
    return mean, sqrt(spread) / float(w.sum())


def pooled(rows: Sequence[SizeRow]) -> tuple[float, float, float]:
    """How often majorities of all these sizes are right, with 95 % bounds (Wilson, of Kish's effective size)."""
    stand_for = sum(row.weight for row in rows)
    share = sum(row.weight * row.majority_accuracy for row in rows) / stand_for
    draws = stand_for**2 / sum(row.weight**2 / row.draws for row in rows)
    return share, *wilson_interval(share * draws, draws)


def best_kappa(rows: Sequence[SizeRow]) -> int:
    """The κ with the fewest right majorities below it and wrong ones from it on; of several the smallest, 0 for none.

    Larger than every size where no size is right more often than not.
    """

    def errors(kappa: int) -> float:
        return sum(
            row.weight * (row.majority_accuracy if row.size < kappa else 1 - row.majority_accuracy) for row in rows
        )

    return min([0, *(row.size + 1 for row in rows)], key=lambda kappa: (round(errors(kappa), 6), kappa))


class WidthsSoFar:
    """The log-likelihood of gold under eq. 3's weights for several σ, over groups that have a right rollout."""

    def __init__(self, settings: CommonSettings) -> None:
        own = getattr(settings, "sigma", None)
        widths = dict.fromkeys((own, *WIDTHS)) if own is not None else {}
        self._tried = {sigma: settings.model_copy(update={"sigma": sigma}) for sigma in widths}
        self._sums, self._weights = np.zeros(len(widths)), np.zeros(2)

    def add(self, group: FrozenGroup) -> None:
        """Count a group, if it has gold and is not penalised."""
        votes, grades = group.group.votes, group.step.grades
        correct = grades.correct if grades else ()
        pairs = zip(votes.classes, correct, strict=False)
        right = sorted({label for label, is_right in pairs if is_right and label is not None})
        scores = [each.score(votes, PromptFacts()) for each in self._tried.values()] if right else []
        if scores and not scores[0].penalized:
            likely = np.array([score.label_weights[right].sum() for score in scores])
            self._sums += group.weight * np.log(np.maximum(likely, 1e-12))
            self._weights += group.weight, group.weight**2

    def better(self) -> float | None:
        """The likeliest σ, if a likelihood ratio of LEAST_GOLD draws or more tells it from the method's own (95 %)."""
        total, squares = self._weights
        if not squares or total**2 / squares < LEAST_GOLD:
            return None
        # A weight is the number of prompts that a draw stands for; the likelihood is that of the draws.
        gains = (self._sums - self._sums[0]) * total / squares
        return list(self._tried)[int(np.argmax(gains))] if gains.max() > GAIN else None


def chance_of_failure(prompts: Sequence[tuple[float, float, float]], seed: int = 0) -> float | None:
    """The chance that training without labels fails, by a bootstrap over the prompts with gold; None for few of them.

    Of each prompt: its squared advantage and the part on a wrong majority, both 0 in a penalised group, and the sum of
    A − mean(A) over right rollouts, all times its weight. Training fails if over all prompts at least WRONG_SHARE of
    the first is on wrong majorities, or right answers gain nothing: the last sum is not above 0.
    """
    if len(prompts) < LEAST_GOLD:
        return None
    table, rng = np.array(prompts), np.random.default_rng(seed)
    even = np.full(len(table), 1 / len(table))
    sums = np.array([rng.multinomial(len(table), even) @ table for _ in range(RESAMPLES)])
    return float(np.mean((sums[:, 1] >= WRONG_SHARE * np.maximum(sums[:, 0], 1e-12)) | (sums[:, 2] <= 0)))
