"""Wraps SamplesGenerator.__init__: the order of the prompts follows --train.seed."""

from collections.abc import Callable
from typing import Any

import torch


def initialise(wrapped: Callable[..., None], generator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Seed torch in the process that shuffles the prompts.

    The host (trainer/ppo_trainer.py) seeds the model processes only, so that its prompt order differs from start to
    start; this can go when the host's dataloader takes a seeded generator.
    """
    wrapped(*args, **kwargs)
    torch.manual_seed(generator.args.train.seed)
