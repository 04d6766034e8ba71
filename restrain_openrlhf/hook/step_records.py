"""What a training step leaves behind: a JSON line beside the run, and Ray metrics for Prometheus."""

import json
import math
import re
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ray.util.metrics import Gauge

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


RUN = "run"


def publish(run: str, step: int, numbers: Mapping[str, float], at: float | None = None) -> dict[str, float]:
    """Set one gauge per finite number; returns what was set, by the names Ray exports with `ray_` before them.

    `restrain/majority_share_mean` becomes restrain_majority_share_mean, a number of the host's such as `kl`
    restrain_host_kl. `at` is the step's time, in seconds since the epoch (now, if None).
    """
    values = {gauge_name(name): float(value) for name, value in numbers.items() if math.isfinite(value)}
    values |= {"restrain_step": float(step), "restrain_last_step_timestamp_seconds": time.time() if at is None else at}
    for name, value in values.items():
        _gauge(name).set(value, {RUN: run})
    return values


def gauge_name(name: str) -> str:
    """A metric's name under Prometheus' rules, marked as the host's unless it is ours."""
    ours = name.startswith("restrain/")
    text = name.removeprefix("restrain/")
    return ("restrain_" if ours else "restrain_host_") + re.sub(r"[^a-zA-Z0-9]+", "_", text).strip("_").lower()


@cache
def _gauge(name: str) -> Gauge:
    return Gauge(name, description="Of the last training step; see docs/operations/kubernetes.md.", tag_keys=(RUN,))
