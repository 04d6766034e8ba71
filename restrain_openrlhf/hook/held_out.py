"""Keeps the host's held-out evaluations as JSON lines beside the metrics, and makes those that the host leaves out."""

from pathlib import Path
from typing import Any

from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.hook.environment import config_here
from restrain_openrlhf.hook.step_records import finite
from restrain_openrlhf.run.metrics import HELD_OUT_FILE, read_held_out
from restrain_openrlhf.tracking.writers import write_row


def evaluate_left_out(trainer: Any, step: int) -> None:
    """Evaluate where the run begins, if that is due and has no row: the base model, or the checkpoint it goes on from.

    The host writes a checkpoint before it evaluates (trainer/ppo_trainer.py, PPOTrainer.fit), and never goes back: a
    run that was killed between the two would have no evaluation of that step.
    """
    config = config_here()
    if not trainer.eval_dataloader or not _is_due(config, trainer.args.eval.steps, step) or _is_kept(config, step):
        return
    if step:
        trainer.broadcast_to_vllm()
    sampling = {
        **trainer.generate_kwargs,
        "temperature": trainer.args.eval.temperature,
        "n_samples_per_prompt": trainer.args.eval.n_samples_per_prompt,
    }
    keep(config, step, trainer.evaluate(step, **sampling))


def _is_due(config: HookConfig, every: float, step: int) -> bool:
    return config.evaluate_first if step == 0 else config.metrics is not None and step % every == 0


def _is_kept(config: HookConfig, step: int) -> bool:
    if config.metrics is None:
        return False
    return any(evaluation.step == step for evaluation in read_held_out(config.metrics.parent))


def save_best_checkpoint(
    trainer: Any, eval_metrics: dict[str, Any], global_step: int, client_states: dict[str, Any] | None = None
) -> None:
    """Takes the place of BasePPOTrainer.save_best_checkpoint, to which both trainers bring every evaluation."""
    from openrlhf.trainer.ppo_trainer import BasePPOTrainer  # noqa: PLC0415 - its import is what loads this module

    keep(config_here(), global_step, eval_metrics)
    BasePPOTrainer.save_best_checkpoint(trainer, eval_metrics, global_step, client_states)


def keep(config: HookConfig, step: int, metrics: dict[str, Any]) -> None:
    """Append the evaluation's numbers, where the run keeps metrics at all."""
    if config.metrics is not None and metrics:
        write_row(_beside(config.metrics), step, finite(metrics), config.mlflow)


def _beside(metrics: Path) -> Path:
    return metrics.with_name(HELD_OUT_FILE)
