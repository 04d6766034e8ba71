"""Takes the place of train_step on the trainer actors: vote statistics join its metrics, each step a JSON line."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.hook.gauges import publish
from restrain_openrlhf.hook.settings import HookSettings
from restrain_openrlhf.vote_statistics import StepVotes


def train_step(trainer: Any, rollout_samples: list[Any], global_step: int) -> tuple[dict[str, Any], int]:
    """The host's step; what it returns goes on to its TensorBoard and W&B loggers, votes included."""
    from openrlhf.trainer.ppo_trainer import BasePPOTrainer  # noqa: PLC0415 - its import is what loads this module

    status, step = BasePPOTrainer.train_step(trainer, rollout_samples, global_step)
    votes: StepVotes = trainer.experience_maker.restrain_votes
    status.update({f"restrain/{name}": value for name, value in votes.scalars().items()})
    metrics = HookSettings.from_environment().metrics
    if metrics is not None:
        append_step(metrics, step, status, votes)
    publish(metrics.parent.name if metrics else "", step, _numbers(status))
    return status, step


def append_step(path: Path, step: int, status: dict[str, Any], votes: StepVotes) -> None:
    """Append one row. Rows of this step or later, left by a run that was killed and resumed, are dropped first."""
    # JSON has no word for NaN; a diverged metric is written as null and must not stop the run.
    numbers = {name: value if math.isfinite(value) else None for name, value in _numbers(status).items()}
    row = dump({"step": step, **numbers, "votes": asdict(votes)})
    kept = [line for line in _lines(path) if _step_of(line) < step]
    if len(kept) == len(_lines(path)):
        with path.open("a", encoding="utf-8") as file:
            file.write(row)
        return
    partial = path.with_name(path.name + ".partial")
    partial.write_text("".join([*kept, row]), encoding="utf-8")
    partial.replace(path)


def _numbers(status: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in status.items() if isinstance(value, int | float)}


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []


def _step_of(line: str) -> float:
    """The step of a row; a line cut short by a kill counts as later than every step, so that it is dropped."""
    try:
        return float(json.loads(line)["step"])
    except json.JSONDecodeError:
        return float("inf")
