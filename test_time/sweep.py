"""Sweeps: several test sets, each adapted to from the same base model, and one table of all of them."""

import csv
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.errors import ConfigError, RestrainError, RunError
from restrain_openrlhf.report.page import Table, write_page
from test_time.accuracy import TEST, Score
from test_time.adapt import Listener, adapt
from test_time.adaptation import Adaptation
from test_time.outcome import Outcome

ACCURACIES = ("policy", "greedy pass@1", "pass@1 at T 0.6", "maj@n", "n")
COLUMNS = ("set", "problems", "answers right", "base vote right", *ACCURACIES, "changed", "alarm", "collapse step")


@dataclass(frozen=True)
class Failed:
    """A set whose adaptation failed, and why."""

    name: str
    error: RestrainError


def sweep(
    jobs: Sequence[Adaptation], out: Path, listening: Callable[[str], AbstractContextManager[Listener]]
) -> list[Outcome]:
    """Adapt to each set in turn; a set that fails does not stop the others. Writes sweep.html and sweep.csv.

    `listening` opens the listener of one set.

    Raises ConfigError for two sets of one name, RunError in the end naming those that failed.
    """
    names = [job.problems.name for job in jobs]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"Two of the sets are called {name!r}, and would share a folder. Rename one file.")
    outcomes: list[Outcome] = []
    failed: list[Failed] = []
    for job in jobs:
        try:
            with listening(job.problems.name) as listener:
                outcomes.append(adapt(job, listener))
        except RestrainError as error:
            failed.append(Failed(job.problems.name, error))
        write_table(out, outcomes)
    if failed:
        words = "\n".join(f"{one.name}: {one.error}" for one in failed)
        raise RunError(f"{len(failed)} of {len(jobs)} sets failed; the others are in {out / 'sweep.html'}.\n{words}")
    return outcomes


def write_table(out: Path, outcomes: Sequence[Outcome]) -> None:
    """Write sweep.html and sweep.csv of the sets that are done."""
    out.mkdir(parents=True, exist_ok=True)
    rows = [cells for outcome in outcomes for cells in _cells(outcome)]
    with (out / "sweep.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    lead = f"{len(outcomes)} test sets, each from the same base model."
    write_page(out / "sweep.html", "Test-time adaptation", lead, [Table("All sets", COLUMNS, rows)], [])


def _cells(outcome: Outcome) -> list[list[str]]:
    """A line per policy on the set adapted to, with the accuracy of the answers handed back; dashes without gold."""
    found = outcome.comparison
    shares = [f"{right / found.problems:.1%}" for right in (found.right, found.right_before)] if found else ["–", "–"]
    first = [outcome.name, str(outcome.problems), *shares]
    step = outcome.collapse.step
    last = [str(outcome.changed), outcome.alarm or "none", "–" if step is None else str(step)]
    scores = [score for score in outcome.scores if score.benchmark == TEST]
    return [[*first, *_accuracies(score), *last] for score in scores] or [[*first, *("–" for _ in ACCURACIES), *last]]


def _accuracies(score: Score) -> list[str]:
    return [score.policy, f"{score.greedy:.1%}", f"{score.pass_at_1:.1%}", f"{score.majority:.1%}", str(score.n)]
