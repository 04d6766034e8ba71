"""Takes the place of train_step on the trainer actors: vote statistics join its metrics, each step a JSON line."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from restrain_openrlhf.hook.gauges import publish
from restrain_openrlhf.hook.settings import HookSettings
from restrain_openrlhf.hook.step_rows import append_row, finite, numbers
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
    publish(metrics.parent.name if metrics else "", step, numbers(status))
    return status, step


def append_step(path: Path, step: int, status: dict[str, Any], votes: StepVotes) -> None:
    """Append one row. Rows of this step or later, left by a run that was killed and resumed, are dropped first."""
    append_row(path, step, {**finite(status), "votes": asdict(votes)})
