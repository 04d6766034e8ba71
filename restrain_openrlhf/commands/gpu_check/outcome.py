"""The outcomes of checks, and their output as a table for people and as JSON for programs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from rich.markup import escape
from rich.table import Column, Table

from restrain_openrlhf.data.outputs import write_whole

Verdict = Literal["pass", "fail", "skipped"]
COLOURS: Mapping[Verdict, str] = {"pass": "green", "fail": "red", "skipped": "yellow"}


@dataclass(frozen=True)
class CheckOutcome:
    """One line of a check; `found` says what was measured, why it failed, or why it was not tried."""

    name: str
    verdict: Verdict
    found: str
    numbers: Mapping[str, float] = field(default_factory=dict)


def judged(name: str, holds: bool, found: str, **numbers: float) -> CheckOutcome:
    """Passed where it holds or is only reported, else failed. After a failure, a long run should not be started."""
    return CheckOutcome(name, "pass" if holds else "fail", found, numbers)


def failed(name: str, found: str, **numbers: float) -> CheckOutcome:
    return judged(name, False, found, **numbers)


def skipped(name: str, because: str) -> CheckOutcome:
    """The outcome of what could not be tried here."""
    return CheckOutcome(name, "skipped", because)


@dataclass(frozen=True)
class CheckResult:
    """The outcomes of a check, and how long it took."""

    check: str
    outcomes: tuple[CheckOutcome, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether no outcome has failed."""
        return all(outcome.verdict != "fail" for outcome in self.outcomes)


def table(results: Sequence[CheckResult]) -> Table:
    """A table with a row for each outcome. The first row of a check has its time."""
    made = Table("check", "", Column("found", overflow="fold"), "seconds")
    for result in results:
        for number, outcome in enumerate(result.outcomes):
            verdict = f"[{COLOURS[outcome.verdict]}]{outcome.verdict}[/]"
            seconds = "" if number else f"{result.seconds:.0f}"
            made.add_row(escape(outcome.name), verdict, escape(outcome.found), seconds)
    return made


def write_json(results: Sequence[CheckResult], folder: Path, device: str) -> Path:
    """Write all results. This is done after every check, so that an interrupted command leaves its results."""
    path = folder / "gpu-check.json"
    document = {"device": device, "ok": all(result.ok for result in results), "checks": [asdict(r) for r in results]}
    write_whole(path, json.dumps(document, indent=2) + "\n")
    return path
