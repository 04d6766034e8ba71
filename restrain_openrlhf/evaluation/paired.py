"""Two runs on the same problems: the difference of their accuracies, with its interval over problems or seeds."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from restrain_openrlhf.data.jsonl import read_rows
from restrain_openrlhf.evaluation.grade import GradeRow, majority_right
from restrain_openrlhf.evaluation.result import BenchmarkFolder, Result

# The 97.5 % quantiles of Student's t with 1, 2, … degrees of freedom; the last stands for all that follow.
STUDENT = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
RESAMPLES = 10_000
TAILS = (2.5, 97.5)
SIGNIFICANT = 0.05
FATES = ("learned", "corrupted", "flipped", "unchanged")


@dataclass(frozen=True)
class Difference:
    """pass@1 of one run minus that of another, in [-1, 1], with 95 % bounds over problems.

    `mcnemar` is the exact two-sided p of McNemar's test, None where a problem has several responses.
    """

    value: float
    low: float
    high: float
    problems: int
    mcnemar: float | None


def paired_difference(before: Sequence[GradeRow], after: Sequence[GradeRow]) -> Difference:
    """The difference `after` − `before`, of rows of the same problems in the same order.

    The bounds are a percentile bootstrap over problems, each with both of its shares of right responses, so that what
    makes a problem hard for both runs cancels out (Efron and Tibshirani, 1993, chapter 13).
    """
    gains = np.array([np.mean(b.correct) - np.mean(a.correct) for a, b in zip(before, after, strict=True)])
    drawn = np.random.default_rng(0).integers(len(gains), size=(RESAMPLES, len(gains)))
    low, high = np.percentile(gains[drawn].mean(axis=1), TAILS)
    single = all(len(row.correct) == 1 for row in (*before, *after))
    won, lost = int(np.sum(gains > 0)), int(np.sum(gains < 0))
    return Difference(float(gains.mean()), float(low), float(high), len(gains), mcnemar(won, lost) if single else None)


def mcnemar(won: int, lost: int) -> float:
    """The exact two-sided p of McNemar's test: `won` problems are right in the second run alone, `lost` in the first.

    If neither run were better, each such problem would fall to either side with probability 1/2.
    """
    of = won + lost
    tail = sum(comb(of, count) for count in range(min(won, lost) + 1))
    return float(min(1.0, 2 * tail / 2**of))


def damage(before: Sequence[GradeRow], after: Sequence[GradeRow]) -> str:
    """What became of the majorities of the same problems, such as `flipped` from one wrong text to another.

    TTRL-Guard (https://arxiv.org/abs/2605.19444) counts problems so, since pass@1 hides what a run unlearns.
    """
    found = Counter(_fate(one, other) for one, other in zip(before, after, strict=True))
    return ", ".join(f"{found[fate]} {fate}" for fate in FATES)


def _fate(before: GradeRow, after: GradeRow) -> str:
    was, now = (majority_right(row.group, row.correct) for row in (before, after))
    if was != now:
        return "learned" if now else "corrupted"
    return "unchanged" if was or before.group.majority == after.group.majority else "flipped"


def over_seeds(gains: Sequence[float]) -> str:
    """The mean of differences of pass@1 at equal seeds, with its 95 % interval by Student's t, and what may be said."""
    count, mean = len(gains), float(np.mean(gains))
    if count == 1:
        return f"{100 * mean:+.1f} points with one seed, of which nothing follows for another seed"
    half = STUDENT[min(count, len(STUDENT) + 1) - 2] * float(np.std(gains, ddof=1)) / count**0.5
    found = f"{100 * mean:+.1f} points [{100 * (mean - half):+.1f}, {100 * (mean + half):+.1f}] over {count} seeds"
    if abs(mean) <= half:
        return f"{found}: no difference may be claimed"
    signs = "" if mcnemar(count, 0) <= SIGNIFICANT else f" (the signs alone have p = {mcnemar(count, 0):.2g})"
    return f"{found}: a difference may be claimed, on these problems, if seeds differ as a normal variable does{signs}"


def differences(runs: Mapping[str, Sequence[tuple[BenchmarkFolder, Result]]]) -> Iterator[str]:
    """A line for each pair of runs and each benchmark that both were evaluated on; the first of a pair is the base."""
    for (name, results), (other, others) in combinations(runs.items(), 2):
        known = {result.provenance.benchmark: (folder, result) for folder, result in others}
        for folder, result in results:
            if found := known.get(result.provenance.benchmark):
                yield f"{other} − {name}, {result.provenance.title}: {_compared(folder, result, *found)}"


def _compared(folder: BenchmarkFolder, first: Result, other: BenchmarkFolder, second: Result) -> str:
    how, others = first.provenance, second.provenance
    if how.problems_digest != others.problems_digest:
        return "not compared, because their problems differ"
    if how.answers != others.answers:
        return "not compared, because their answers are of different kinds"
    if (first.extractor_version, first.grader_version) != (second.extractor_version, second.grader_version):
        return "not compared, because their answers were read by other versions; `restrain regrade` both"
    if missing := [each.grades for each in (folder, other) if not each.grades.exists()]:
        return f"not compared, because {missing[0]} is missing; `restrain regrade` writes it"
    before, after = (sorted(read_rows(each.grades, GradeRow), key=lambda row: row.id) for each in (folder, other))
    found = paired_difference(before, after)
    test = "" if found.mcnemar is None else f", McNemar's exact p {found.mcnemar:.2g}"
    bounds = f"[{100 * found.low:+.1f}, {100 * found.high:+.1f}]"
    sampled = [f"T {each.temperature:g}, up to {each.max_new_tokens} tokens" for each in (how, others)]
    majorities = f"majorities: {damage(before, after)}"
    majorities += "" if sampled[0] == sampled[1] else f"; sampled otherwise, {sampled[1]} against {sampled[0]}"
    return f"{100 * found.value:+.1f} points {bounds} over the same {found.problems} problems{test}; {majorities}"
