"""How far a run has come, counted in the trainer's process from its start or from the checkpoint it goes on from."""

from dataclasses import dataclass
from typing import Any


@dataclass
class Progress:
    """Training steps (rollout batches) and prompts drawn since the run began, however often it was started."""

    steps: int = 0
    prompts: int = 0


def resume_counting(trainer: Any) -> Progress:
    """Begin where the checkpoint ends that the host is about to go on from (PPOTrainer.init_checkpoint_states)."""
    states = trainer.init_checkpoint_states()
    progress = Progress(steps=states["global_step"], prompts=states["total_consumed_prompts"])
    trainer.samples_generator.restrain_progress = progress
    return progress


def progress_of(generator: Any) -> Progress:
    """The count that goes with the host's sample generator."""
    if not hasattr(generator, "restrain_progress"):
        generator.restrain_progress = Progress()
    progress: Progress = generator.restrain_progress
    return progress
