"""Wraps DeepspeedStrategy.setup_dataloader: the order of the prompts follows --train.seed."""

from collections.abc import Callable
from typing import Any

import torch


def setup_dataloader(wrapped: Callable[..., Any], strategy: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Seed torch in the process that shuffles the prompts.

    The host seeds its model processes only (utils/deepspeed/deepspeed.py, setup_distributed), so that the order differs
    from start to start; this can go when its dataloader takes a seeded generator.
    """
    torch.manual_seed(strategy.seed)
    return wrapped(*args, **kwargs)
