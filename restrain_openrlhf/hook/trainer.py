"""Takes the place of the trainer actors' methods: where a run begins and ends, and what each step leaves behind."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from restrain_openrlhf.config.mlflow import MlflowSettings
from restrain_openrlhf.hook.environment import config_here
from restrain_openrlhf.hook.experience import LogProbGap
from restrain_openrlhf.hook.held_out import evaluate_left_out
from restrain_openrlhf.hook.keeping import keeping_of
from restrain_openrlhf.hook.kv_cache import cache_peak
from restrain_openrlhf.hook.patches import original_of
from restrain_openrlhf.hook.progress import resume_counting
from restrain_openrlhf.hook.sizes import optimizer_steps
from restrain_openrlhf.hook.step_records import finite, not_finite, numbers, publish
from restrain_openrlhf.hook.throughput import tokens_per_second
from restrain_openrlhf.tracking.writers import unsent, write_row
from restrain_openrlhf.vote_statistics import StepVotes

# In a data loader's state (torchdata/stateful_dataloader/stateful_dataloader.py).
LOADER_ENDED = "_iterator_finished"
UPDATE_ARRIVED = "restrain/update_arrived"


def fit(trainer: Any, global_step: int = 0) -> None:
    """Takes the place of PPOTrainer.fit (trainer/ppo_trainer.py)."""
    evaluate_left_out(trainer, resume_counting(trainer).steps)
    original_of(trainer, "fit")(trainer, global_step)


def init_checkpoint_states(trainer: Any) -> dict[str, Any]:
    """Takes the place of BasePPOTrainer.init_checkpoint_states, which both trainers ask where a run goes on.

    The host counts an episode whose last batch was smaller as unfinished, and a data loader that came to its end
    begins again (torchdata's StatefulDataLoader): it would repeat the episode. This can go when the host's checkpoint
    names the episode that is next.
    """
    from openrlhf.trainer.ppo_trainer import BasePPOTrainer  # noqa: PLC0415 - its import is what loads this module

    states: dict[str, Any] = BasePPOTrainer.init_checkpoint_states(trainer)
    ended = states["data_loader_state_dict"].get(LOADER_ENDED, False)
    return {**states, "episode": states["episode"] + 1} if ended else states


def get_max_steps(trainer: Any) -> int:
    """Takes the place of PPOTrainer.get_max_steps: the learning rate is planned for the steps that will be taken."""
    every: int = original_of(trainer, "get_max_steps")(trainer)
    steps = config_here().steps
    return every if steps is None else min(every, optimizer_steps(steps, trainer.args))


def train_step(trainer: Any, rollout_samples: list[Any], global_step: int) -> tuple[dict[str, Any], int]:
    """The host's step, with votes and the gap among its numbers. The host adds the time of generation to them later."""
    from openrlhf.trainer.ppo_trainer import BasePPOTrainer  # noqa: PLC0415 - its import is what loads this module

    status, step = BasePPOTrainer.train_step(trainer, rollout_samples, global_step)
    votes: StepVotes = trainer.experience_maker.restrain_votes
    gap: LogProbGap = trainer.experience_maker.restrain_logprob_gap
    status.update({f"restrain/{name}": value for name, value in {**votes.scalars(), **gap.scalars()}.items()})
    if trainer.experience_maker.restrain_update_arrived is not None:
        status[UPDATE_ARRIVED] = trainer.experience_maker.restrain_update_arrived
    return status, step


def save_logs_and_checkpoints(
    trainer: Any,
    global_step: int,
    logs_dict: dict[str, Any] | None = None,
    client_states: dict[str, Any] | None = None,
) -> None:
    """Takes the place of BasePPOTrainer.save_logs_and_checkpoints, to which both trainers bring a step's whole numbers.

    The row is written before the step's checkpoint: a step that a resumed run does not repeat has its row.
    """
    from openrlhf.trainer.ppo_trainer import BasePPOTrainer  # noqa: PLC0415 - its import is what loads this module

    logs = logs_dict or {}
    logs.update(tokens_per_second(logs))
    logs.update(cache_peak(trainer.vllm_engines or ()))
    metrics, mlflow, maker = config_here().metrics, config_here().mlflow, trainer.experience_maker
    logs.update(unsent(mlflow, metrics))
    logs.update(not_finite(logs))
    if metrics is not None:
        keeping = keeping_of(trainer, metrics)
        logs.update(keeping.keep(global_step, maker.restrain_scored, maker.restrain_rollout_gaps))
        append_step(metrics, global_step, logs, maker.restrain_votes, mlflow)
    publish(metrics.parent.name if metrics else "", global_step, numbers(logs))
    BasePPOTrainer.save_logs_and_checkpoints(trainer, global_step, logs, client_states)


def append_step(
    path: Path, step: int, status: dict[str, Any], votes: StepVotes, mlflow: MlflowSettings | None = None
) -> None:
    """Append one row. Rows of this step or later, left by a run that was killed and resumed, are dropped first."""
    write_row(path, step, {**finite(status), "votes": asdict(votes)}, mlflow)
