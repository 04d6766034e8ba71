"""The results as a table for people and as JSON for programs."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from restrain_openrlhf.gpu_check.checks import Result
from restrain_openrlhf.gpu_check.outcome import Verdict

COLOURS = {Verdict.PASSED: "green", Verdict.FAILED: "red", Verdict.SKIPPED: "yellow"}
FILE = "gpu-check.json"


def table(results: Sequence[Result]) -> Table:
    """A row for each line; a check's time stands in its first."""
    made = Table("check", "", "found", "seconds")
    for result in results:
        for number, outcome in enumerate(result.outcomes):
            colour = COLOURS[outcome.verdict]
            seconds = f"{result.seconds:.0f}" if number == 0 else ""
            made.add_row(escape(outcome.name), f"[{colour}]{outcome.verdict}[/]", escape(outcome.found), seconds)
    return made


def write_json(results: Sequence[Result], folder: Path, device: str) -> Path:
    """All of it, after every check, so that an interrupted command leaves what it found."""
    path = folder / FILE
    ok = all(result.ok for result in results)
    document = {"device": device, "ok": ok, "checks": [asdict(result) for result in results]}
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return path
