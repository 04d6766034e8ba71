"""`restrain gpu-check`: here, what all checks share: measurements in processes of their own, and their outcomes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any, Literal

from restrain_openrlhf.machine.processes import ending_with_us, printed_in, start_module, stopped

# A run gives its own processes 30 seconds to end; this must be longer.
PATIENCE_SECONDS = 60
# A measurement takes a minute or two, or more if kernels are compiled the first time.
LIMIT_SECONDS = 900.0
RESTRAIN = "restrain_openrlhf.commands.main"


def measured(module: str, words: Sequence[object], log: Path) -> list[dict[str, Any]]:
    """Run a module, and return the JSON objects that it prints, one per line, among what libraries print.

    Raises RunError; see `run_module`.
    """
    run_module(module, words, log)
    return [json.loads(line) for line in printed_in(log) if line.startswith('{"') and line.endswith("}")]


def run_module(module: str, words: Sequence[object], log: Path) -> None:
    """Run `python -m MODULE WORDS...`, with its output appended to `log`. It ends when this process ends.

    Raises RunError with the log's last lines where it fails or takes longer than the limit.
    """
    with ending_with_us(PATIENCE_SECONDS) as running:
        process = start_module(module, words, log)
        running.append(process)
        try:
            status = process.wait(LIMIT_SECONDS)
        except TimeoutExpired:
            minutes = f"{LIMIT_SECONDS / 60:.0f} minutes"
            raise stopped(f"`python -m {module}` was still running after {minutes}, and was ended", log) from None
    if status:
        raise stopped(f"`python -m {module}` stopped with status {status}", log)


Verdict = Literal["pass", "fail", "skipped"]


@dataclass(frozen=True)
class CheckOutcome:
    """One line of a check; `found` says what was measured, why it failed, or why it was not tried."""

    name: str
    verdict: Verdict
    found: str


def judged(name: str, holds: bool, found: str) -> CheckOutcome:
    """Passed where it holds or is only reported, else failed. After a failure, a long run should not be started."""
    return CheckOutcome(name, "pass" if holds else "fail", found)


def failed(name: str, found: str) -> CheckOutcome:
    return judged(name, False, found)


def skipped(name: str, because: str) -> CheckOutcome:
    return CheckOutcome(name, "skipped", because)
