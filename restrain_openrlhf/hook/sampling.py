"""Wraps DeepspeedStrategy.setup_dataloader: prompts come in the order of --train.seed, and only those to train on."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from restrain_openrlhf.hook.settings import HookSettings
from restrain_openrlhf.method import build
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.easy import selected

COLUMNS = ("prompts", "labels", "images", "datasources")


def setup_dataloader(wrapped: Callable[..., Any], strategy: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Seed torch in the process that shuffles the prompts, and leave out the prompts that the method does.

    The host seeds its model processes only (utils/deepspeed/deepspeed.py, setup_distributed), so that the order differs
    from start to start; this can go when its dataloader takes a seeded generator. The training set is the one that is
    shuffled (trainer/ppo_trainer.py, prepare_datasets).
    """
    torch.manual_seed(strategy.seed)
    dataset, shuffled = args[0], args[3] if len(args) > 3 else kwargs.get("shuffle", True)  # noqa: PLR2004
    if shuffled and all(hasattr(dataset, column) for column in COLUMNS):
        keep_selected(dataset, HookSettings.from_environment())
    return wrapped(*args, **kwargs)


def keep_selected(dataset: Any, settings: HookSettings) -> None:
    """Shorten the host's PromptDataset (datasets/prompts_dataset.py) in place: the schedule is made from its length."""
    kept = _kept(settings, tuple(dataset.prompts))
    if kept is None:
        return
    for column in COLUMNS:
        setattr(dataset, column, [getattr(dataset, column)[position] for position in kept])


@cache
def _kept(settings: HookSettings, prompts: tuple[str, ...]) -> list[int] | None:
    selection = build(settings.method).selection
    if selection is None or settings.reference is None:
        return None
    return selected(selection, load_reference(settings.reference), prompts)
