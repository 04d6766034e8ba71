"""One JSON line per step, in a file that a killed and resumed run goes on writing."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from restrain_openrlhf.data.jsonl import dump


def append_row(path: Path, step: int, values: Mapping[str, Any]) -> None:
    """Append `values` as the row of `step`; rows of this step or later are of a run that was killed, and go."""
    row = dump({"step": step, **values})
    kept = [line for line in _lines(path) if _step_of(line) < step]
    if len(kept) == len(_lines(path)):
        with path.open("a", encoding="utf-8") as file:
            file.write(row)
        return
    partial = path.with_name(path.name + ".partial")
    partial.write_text("".join([*kept, row]), encoding="utf-8")
    partial.replace(path)


def finite(status: Mapping[str, Any]) -> dict[str, float | None]:
    """The numbers among the values. JSON has no word for NaN: a diverged metric is None, and must not stop the run."""
    return {name: value if math.isfinite(value) else None for name, value in numbers(status).items()}


def numbers(status: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among the values."""
    return {name: value for name, value in status.items() if isinstance(value, int | float)}


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []


def _step_of(line: str) -> float:
    """The step of a row; a line cut short by a kill counts as later than every step, so that it is dropped."""
    try:
        return float(json.loads(line)["step"])
    except json.JSONDecodeError:
        return float("inf")
