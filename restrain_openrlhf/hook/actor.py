"""Wraps ActorPPOTrainer: its loss is paired, and each step reads the pair that came with the rollouts."""

import sys
from collections.abc import Callable
from typing import Any

import torch

from restrain_openrlhf.errors import HookNotActiveError
from restrain_openrlhf.hook.environment import config_here
from restrain_openrlhf.hook.paired_loss import PairedLoss, weighted_kl
from restrain_openrlhf.hook.progress import shuffle_seed
from restrain_openrlhf.reward.wire import KL_WEIGHT, NEGATIVE, POSITIVE


def initialise(wrapped: Callable[..., None], trainer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """After the host built its loss (trainer/ray/ppo_actor.py, ActorPPOTrainer.__init__), pair it."""
    wrapped(*args, **kwargs)
    trainer.actor_loss_fn = PairedLoss(trainer.actor_loss_fn)


def ppo_train(wrapped: Callable[..., Any], trainer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One training step: micro-batches are shuffled from torch's own generator, which a restart would begin anew.

    DeepSpeed counts optimizer steps on through its checkpoints.
    """
    if config_here().seeded_rollouts:
        torch.manual_seed(shuffle_seed(trainer.args.train.seed, trainer.actor.model.global_steps))
    return wrapped(*args, **kwargs)


def training_step(wrapped: Callable[..., Any], trainer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One micro-batch: the pair takes the place of the advantages, and u_x weighs the KL term."""
    experience = args[0] if args else kwargs["experience"]
    if experience.advantages is not None:
        raise HookNotActiveError(
            "The trainer process that made these rollouts' advantages is not hooked; training on them would not be "
            "RESTRAIN."
        )
    positive = column(experience.info, POSITIVE)
    negative = column(experience.info, NEGATIVE)
    device = experience.sequences.device
    experience.advantages = torch.stack([positive, negative]).unsqueeze(-1).to(device)
    host_module = sys.modules[type(trainer).__module__]
    with weighted_kl(host_module, column(experience.info, KL_WEIGHT)):
        return wrapped(*args, **kwargs)


def column(info: dict[str, Any], name: str) -> torch.Tensor:
    """One per-rollout value of a micro-batch, (B,).

    The host's batching turns it into a list of 0-D tensors (experience.py, make_experience_batch). Raises
    HookNotActiveError where it is absent: whoever drew the rollouts did not score them.
    """
    if name not in info:
        raise HookNotActiveError(
            f"The rollouts carry no {name!r}, so the rollout actors that drew them do not run this project's agent."
        )
    values = info[name]
    return values if isinstance(values, torch.Tensor) else torch.stack(list(values))
