"""What one line of the check found: passed, failed or skipped, why, and the numbers behind it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Verdict(StrEnum):
    """How a line ended."""

    PASSED = "pass"
    FAILED = "fail"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Outcome:
    """One line: `found` says what was measured, why it failed, or why it was not tried."""

    name: str
    verdict: Verdict
    found: str
    numbers: Mapping[str, float] = field(default_factory=dict)


def passed(name: str, found: str, **numbers: float) -> Outcome:
    """It is as it must be; for what is only reported too."""
    return Outcome(name, Verdict.PASSED, found, numbers)


def failed(name: str, found: str, **numbers: float) -> Outcome:
    """A long run should not be started."""
    return Outcome(name, Verdict.FAILED, found, numbers)


def skipped(name: str, because: str) -> Outcome:
    """It could not be tried here."""
    return Outcome(name, Verdict.SKIPPED, because)


def judged(name: str, holds: bool, found: str, **numbers: float) -> Outcome:
    """Passed where it holds, else failed."""
    return passed(name, found, **numbers) if holds else failed(name, found, **numbers)
