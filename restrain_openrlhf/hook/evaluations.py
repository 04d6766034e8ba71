"""Keeps the host's held-out evaluations as JSON lines beside the metrics, the base model's first if asked."""

from pathlib import Path
from typing import Any

from restrain_openrlhf.hook.settings import HookSettings
from restrain_openrlhf.hook.step_rows import append_row, finite
from restrain_openrlhf.run.evaluations import FILE


def evaluate_base_model(trainer: Any) -> None:
    """Before the first step, where that is asked for and the host evaluates at all."""
    settings = HookSettings.from_environment()
    if settings.evaluate_first and trainer.eval_dataloader and not _has_started(settings):
        sampling = {
            **trainer.generate_kwargs,
            "temperature": trainer.args.eval.temperature,
            "n_samples_per_prompt": trainer.args.eval.n_samples_per_prompt,
        }
        keep(settings, 0, trainer.evaluate(0, **sampling))


def save_best_checkpoint(
    trainer: Any, eval_metrics: dict[str, Any], global_step: int, client_states: dict[str, Any] | None = None
) -> None:
    """Takes the place of BasePPOTrainer.save_best_checkpoint, to which both trainers bring every evaluation."""
    from openrlhf.trainer.ppo_trainer import BasePPOTrainer  # noqa: PLC0415 - its import is what loads this module

    keep(HookSettings.from_environment(), global_step, eval_metrics)
    BasePPOTrainer.save_best_checkpoint(trainer, eval_metrics, global_step, client_states)


def keep(settings: HookSettings, step: int, metrics: dict[str, Any]) -> None:
    """Append the evaluation's numbers, where the run keeps metrics at all."""
    if settings.metrics is not None and metrics:
        append_row(_beside(settings.metrics), step, finite(metrics))


def _beside(metrics: Path) -> Path:
    return metrics.with_name(FILE)


def _has_started(settings: HookSettings) -> bool:
    return settings.metrics is not None and _beside(settings.metrics).exists()
