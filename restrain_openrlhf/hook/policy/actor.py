"""The optimizer step in the policy's processes: it reads A⁺ and A⁻, has the paired loss, and keeps token means."""

from collections.abc import Callable
from typing import Any

import torch

from restrain_openrlhf.errors import HookNotActiveError
from restrain_openrlhf.hook.fixes.log_probs import logits_read_again
from restrain_openrlhf.hook.install.environment import config_here
from restrain_openrlhf.hook.policy.paired_loss import PairedLoss, paired, weighted_kl
from restrain_openrlhf.hook.policy.token_means import LossBatch
from restrain_openrlhf.hook.rollout.training_data import shuffle_seed
from restrain_openrlhf.scoring.wire import KL_WEIGHT, NEGATIVE, POSITIVE

PEAK_MEMORY = "restrain/peak_gpu_memory_bytes"


def ppo_train(wrapped: Callable[..., Any], trainer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One training step. Adds the step's token means and peak memory to the host's numbers.

    With `seeded_rollouts`, torch's generator, which shuffles micro-batches, is seeded by the number of optimizer steps
    so far. DeepSpeed keeps that number in its checkpoints, so a resumed run shuffles as before.
    """
    if config_here().seeded_rollouts:
        torch.manual_seed(shuffle_seed(trainer.args.train.seed, trainer.actor.model.global_steps))
    with paired(trainer) as loss:
        status = wrapped(*args, **kwargs)
    means = loss.sums.over_ranks(trainer.strategy.ds_device_mesh["dp"].get_group())
    return {**status, **means, **peak_memory(trainer.strategy)}


def peak_memory(strategy: Any) -> dict[str, float]:
    """The most bytes that torch had allocated since the last call, on the policy's fullest GPU; empty without CUDA."""
    if not torch.cuda.is_available():
        return {}
    peak = strategy.all_reduce(float(torch.cuda.max_memory_allocated()), "max")
    torch.cuda.reset_peak_memory_stats()
    return {PEAK_MEMORY: peak}


def training_step(wrapped: Callable[..., Any], trainer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One micro-batch: the pair takes the place of the advantages, and u_x weighs the KL term."""
    experience = args[0] if args else kwargs["experience"]
    if experience.advantages is not None:
        raise HookNotActiveError(
            "The trainer process that computed these rollouts' advantages is not hooked, so that training on them "
            "would not be RESTRAIN."
        )
    pair = torch.stack([column(experience.info, name) for name in (POSITIVE, NEGATIVE)])
    experience.advantages = pair.unsqueeze(-1).to(experience.sequences.device)
    loss: PairedLoss = trainer.actor_loss_fn
    # With the default of 0 the host logs the entropy but does not train on it.
    trains_entropy = bool(trainer.args.actor.entropy_coef)
    with weighted_kl(trainer, column(experience.info, KL_WEIGHT)) as kl, logits_read_again(trains_entropy):
        status = wrapped(*args, **kwargs)
    batch = LossBatch.of(loss.batch, token_level=bool(loss.host_loss.token_level_loss))
    loss.sums.add_micro_batch(status["metrics"], batch, kl[0] if kl else None)
    return status


def column(info: dict[str, Any], name: str) -> torch.Tensor:
    """A value of each rollout of a micro-batch, (B,).

    The host's batching turns it into a list of 0-D tensors (experience.py, make_experience_batch). Raises
    HookNotActiveError where it is absent, because then the rollouts were drawn without being scored.
    """
    if name not in info:
        raise HookNotActiveError(
            f"The rollouts carry no {name!r}, so the rollout actors that drew them do not run this project's agent."
        )
    values = info[name]
    return values if isinstance(values, torch.Tensor) else torch.stack(list(values))
