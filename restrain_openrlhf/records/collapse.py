"""The Model Collapse Step: where a run's held-out accuracy turns for good.

The name is from "How Far Can Unsupervised RLVR Scale LLM Training?" (arXiv 2603.08660): accuracy under label-free
rewards rises, then falls. docs/concepts/evaluation.md has the definition in words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import NormalDist

from restrain_openrlhf.records.metrics import HeldOutAccuracy, read_held_out

# Ours. The chance that noise alone lets a run that stands still look collapsed.
FALSE_ALARM = 0.01
# Ours. The share of its best that a collapsed run has lost; less than that, "best" and "after" of a table show.
LOST = 0.2
# As many steps in a row as a stop rule of test-time waits for: a single low evaluation says nothing of what follows.
LAST = 2


@dataclass(frozen=True)
class Measurement:
    """A share in [0, 1] after `step` training steps, the mean of `samples` outcomes that are each right or wrong."""

    step: int
    share: float
    samples: float

    @property
    def variance(self) -> float:
        """Of the share, binomial, from one right and one wrong outcome more, so that 0 and 1 are not without noise.

        Evaluations of one run share their problems, so that what differs by chance are samples alone. The binomial
        variance is then an upper bound: the mean of p(1 - p) over problems is at most that of their mean p.
        """
        smoothed = (self.share * self.samples + 1) / (self.samples + 2)
        return smoothed * (1 - smoothed) / self.samples


@dataclass(frozen=True)
class Collapse:
    """A run's Model Collapse Step. `step` is None where the run does not collapse.

    With fewer than three measurements it cannot: `is_known` is False then.
    """

    step: int | None
    measurements: int

    @property
    def is_known(self) -> bool:
        """Whether there are enough measurements to see a best and what follows it."""
        return self.measurements > LAST

    def __str__(self) -> str:
        """A few words, to follow "Model Collapse Step: "."""
        seen = f"{self.measurements} evaluations"
        if not self.is_known:
            return f"not known ({seen}; {LAST + 1} are needed)"
        return f"{'none' if self.step is None else self.step} ({seen})"


def read_collapse(run_dir: Path) -> Collapse:
    """A run's, by its held-out evaluations."""
    return of_evaluations(read_held_out(run_dir))


def of_evaluations(evaluations: Sequence[HeldOutAccuracy]) -> Collapse:
    """By held-out accuracy: pass@1."""
    found = [Measurement(each.step, each.pass_at_1, each.samples) for each in evaluations]
    return Collapse(collapse_step(found), len(found))


def collapse_step(measurements: Sequence[Measurement]) -> int | None:
    """The last step at which the share was its best, noise aside, in a run that then loses it for good; else None.

    A share is the best, noise aside, unless it is further below the highest one than `tolerance` standard deviations
    of their difference. A run loses it for good if the last two shares at least are below that and have lost a fifth
    of the highest one. A run of n equal shares is called collapsed with a chance of at most 1 %.
    """
    if len(measurements) <= LAST:
        return None
    best = max(measurements, key=lambda each: each.share)
    limit = tolerance(len(measurements))
    held = [best.share - each.share <= limit * sqrt(best.variance + each.variance) for each in measurements]
    kept = [each.share > (1 - LOST) * best.share for each in measurements]
    if any(held[-LAST:]) or any(kept[-LAST:]):
        return None
    return max(each.step for each, is_held in zip(measurements, held, strict=True) if is_held)


def tolerance(count: int) -> float:
    """Standard deviations, so that the last of `count` equal shares is beyond them of any other with 1 % at most.

    It is compared with all the others, of which the highest is one: each comparison gets its part of the 1 %
    (Bonferroni), and the difference of two shares is taken as normal.
    """
    return NormalDist().inv_cdf(1 - FALSE_ALARM / count)
