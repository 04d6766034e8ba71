"""Reading a run's metrics.jsonl."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What counted voters was named after rollouts once; runs that began then are plotted, and go on.
EARLIER_NAMES = {"rollouts": "voters", "missing_share_of_rollouts": "missing_share_of_voters"}


@dataclass(frozen=True)
class StepRow:
    """One training step: the host's numbers and the hook's, under their logged names; `votes` as in StepVotes."""

    step: int
    numbers: Mapping[str, float | None]
    votes: Mapping[str, Any]


def read_steps(path: Path) -> list[StepRow]:
    """All whole rows, in order; a last line still being written is left for the next look."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [_row(line) for line in lines if line.endswith("\n")]


def _row(line: str) -> StepRow:
    row = json.loads(line)
    votes = {EARLIER_NAMES.get(name, name): value for name, value in row.pop("votes").items()}
    return StepRow(step=row.pop("step"), votes=votes, numbers=row)
