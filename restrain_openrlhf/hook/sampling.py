"""Wraps DeepspeedStrategy.setup_dataloader: the prompts to train on, in the order of --train.seed, in whole batches."""

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.hook.environment import config_here
from restrain_openrlhf.hook.training_rows import mark_training, refuse_unlabelled
from restrain_openrlhf.method import build
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.easy import selected

COLUMNS = ("prompts", "labels", "images", "datasources")


def setup_dataloader(wrapped: Callable[..., Any], strategy: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Seed torch in the process that shuffles the prompts, leave out those that the method does, fill the last batch.

    The host seeds its model processes only (utils/deepspeed/deepspeed.py, setup_distributed), so that the order differs
    from start to start; this can go when its dataloader takes a seeded generator. The training set is the one that is
    shuffled (trainer/ppo_trainer.py, prepare_datasets).
    """
    torch.manual_seed(strategy.seed)
    dataset, shuffled = args[0], args[3] if len(args) > 3 else kwargs.get("shuffle", True)  # noqa: PLR2004
    if all(hasattr(dataset, column) for column in COLUMNS):
        if shuffled:
            prepare_training(dataset, strategy, config_here())
        else:
            refuse_unlabelled(dataset)
    return wrapped(*args, **kwargs)


def prepare_training(dataset: Any, strategy: Any, config: HookConfig) -> None:
    """The host's PromptDataset (datasets/prompts_dataset.py) of the prompts to train on, changed in place."""
    keep_selected(dataset, config)
    if config.fill_last_batch:
        fill_last_batch(dataset, strategy.args.rollout.batch_size, strategy.seed)
    mark_training(dataset, build(config.method).reads_gold)


def keep_selected(dataset: Any, config: HookConfig) -> None:
    """Leave out the prompts that the method does not train on: the schedule is made from the data set's length."""
    kept = _kept(config, tuple(dataset.prompts))
    if kept is not None:
        _take(dataset, kept)


def fill_last_batch(dataset: Any, batch: int, seed: int) -> None:
    """Repeat a few prompts, drawn by the seed, so that an episode is a whole number of rollout batches.

    Of a smaller batch the host drops rollouts that fill no micro-batch, and takes no optimizer step; its gradient joins
    the next step, and every later step ends in the middle of a batch (trainer/ray/ppo_actor.py, ppo_train, and
    utils/loss_utils.py, iter_grad_accum_global_norm). This can go when the host steps at the end of a batch.
    """
    count = len(dataset.prompts)
    order = random.Random(seed).sample(range(count), count)
    missing = -count % batch
    _take(dataset, [*range(count), *(order[place % count] for place in range(missing))])


def _take(dataset: Any, positions: Sequence[int]) -> None:
    for column in COLUMNS:
        setattr(dataset, column, [getattr(dataset, column)[position] for position in positions])


@cache
def _kept(config: HookConfig, prompts: tuple[str, ...]) -> list[int] | None:
    selection = build(config.method).selection
    if selection is None or config.reference is None:
        return None
    return selected(selection, load_reference(config.reference), prompts)
