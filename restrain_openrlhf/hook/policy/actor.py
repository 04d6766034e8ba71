"""The policy's optimizer step: the m-label loss (eq. 6) as two calls of the host's own loss, and u_x on its KL term."""

import re
import sys
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from typing import Any
from unittest.mock import patch

import torch
from torch import distributed, nn

from restrain_openrlhf.errors import ConfigError, HookNotActiveError
from restrain_openrlhf.hook.fixes.training_step import logits_read_again
from restrain_openrlhf.hook.install.environment import config_here
from restrain_openrlhf.hook.policy.experience import (
    GAP_OF_STEP,
    PLACE,
    GapSums,
    StepGap,
    logprob_gap,
    refuse_mismatch,
    rollout_gaps,
    sums_of,
)
from restrain_openrlhf.hook.rollout.training_data import seed_of
from restrain_openrlhf.records.metrics import CLIP_RATIO, ENTROPY, KL, LOSS, TRAINED_TOKENS
from restrain_openrlhf.scoring.wire import KL_WEIGHT, NEGATIVE, POSITIVE

PEAK_MEMORY = "restrain/peak_gpu_memory_bytes"
# Settings of transformers' models that make a forward pass in training another one than without gradients.
DROPS = re.compile("drop|jitter")
MEANS = (KL, ENTROPY, LOSS, CLIP_RATIO)


@dataclass(frozen=True)
class LossBatch:
    """The response tokens of a micro-batch, and what the host divided its sums by (models/loss.py, aggregate_loss).

    `mask` is (B, T). The host's loss times `divisor` is a sum over `values` terms: the losses of tokens, or with a
    sequence-level loss the means of sequences. KL and entropy are always token-level, with `token_divisor`.
    """

    mask: torch.Tensor
    divisor: torch.Tensor
    values: torch.Tensor
    token_divisor: torch.Tensor

    @classmethod
    def of(cls, batch: Mapping[str, Any], token_level: bool) -> "LossBatch":
        """From the keyword arguments of the host's loss."""
        mask, ranks = batch["action_mask"], batch["dp_size"]
        per_token, per_sequence = batch["batch_num_tokens"] / ranks, batch["global_batch_size"] / ranks
        if token_level:
            return cls(mask, per_token, mask.sum(), per_token)
        return cls(mask, per_sequence, (mask.sum(dim=-1) > 0).sum(), per_token)


class TokenSums:
    """The sums of one rank over a training step: the sum and the number of values for each name of MEANS.

    Their means do not depend on how an optimizer step's rollouts are batched, on packing, or on the number of ranks, as
    the host's own numbers do: those are means over micro-batches of sums divided by the whole step's tokens
    (trainer/ray/ppo_actor.py, ppo_train). The sums stay on the policy's device until the end of the step, so that no
    micro-batch waits for them.
    """

    def __init__(self) -> None:
        self._sums = torch.zeros(len(MEANS), 2, dtype=torch.float64)

    def add(self, name: str, total: torch.Tensor, count: torch.Tensor) -> None:
        """Add `count` values whose sum is `total`, both 0-D."""
        self._sums = self._sums.to(total.device)
        self._sums[MEANS.index(name)] += torch.stack([total.detach().double(), count.double()])

    def add_micro_batch(self, metrics: Mapping[str, Any], batch: LossBatch, kl: torch.Tensor | None) -> None:
        """Add a micro-batch: the `metrics` of the host's training_step, and the unweighted `kl` per token (B, T)."""
        tokens = batch.mask.sum()
        self.add(LOSS, metrics["policy_loss"] * batch.divisor, batch.values)
        self.add(CLIP_RATIO, torch.where(tokens > 0, metrics["ppo_clip_ratio"] * tokens, 0.0), tokens)
        if "entropy_loss" in metrics:
            self.add(ENTROPY, metrics["entropy_loss"] * batch.token_divisor, tokens)
        if kl is not None:
            self.add(KL, (kl * batch.mask).sum(), tokens)

    def over_ranks(self, group: Any = None) -> dict[str, float]:
        """The means over all ranks of the data-parallel `group`, and the tokens trained on, counted in each epoch.

        A mean without values is left out, such as KL without a reference policy.
        """
        sums = self._sums.clone()
        if distributed.is_initialized():
            sums = sums.to(torch.cuda.current_device())
            distributed.all_reduce(sums, group=group)
        rows = dict(zip(MEANS, sums.tolist(), strict=True))
        means = {name: total / count for name, (total, count) in rows.items() if count}
        return {**means, TRAINED_TOKENS: rows[CLIP_RATIO][1]}


class PairedLoss(nn.Module):
    """The host's loss with A⁺ plus the host's loss with A⁻, which is exactly sum_j w_j loss(A_j), clipped or not.

    docs/concepts/method.md has the derivation. `host_loss` is OpenRLHF's PolicyLoss (models/loss.py); any loss that is
    positively homogeneous in the advantage will do. `sums` belongs to the training step, for its token means.
    """

    def __init__(self, host_loss: nn.Module) -> None:
        super().__init__()
        self.host_loss = host_loss
        self.batch: dict[str, Any] = {}
        self.sums = TokenSums()
        self.own: OwnLogProbs | None = None

    def forward(
        self, log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, **batch: Any
    ) -> tuple[torch.Tensor, ...]:
        """The host's arguments and results, but `advantages` is (2, B, 1): A⁺ and A⁻ of each rollout.

        A token is clipped under A⁺ or under A⁻, never under both, so the clip ratios are added; the other diagnostics
        do not depend on the advantage. `batch` is kept until the next call, because it says what the host divided its
        sums by.
        """
        self.batch = batch
        if self.own is not None:
            old_log_probs = log_probs.detach()
            self.own.add(old_log_probs, batch)
        positive, negative = advantages
        loss_positive, clipped_above, *diagnostics = self.host_loss(log_probs, old_log_probs, positive, **batch)
        loss_negative, clipped_below, *_ = self.host_loss(log_probs, old_log_probs, negative, **batch)
        return (loss_positive + loss_negative, clipped_above + clipped_below, *diagnostics)


class OwnLogProbs:
    """The gap of a training step whose own log-probabilities are those of the old policy.

    `places` (B,) and `base` (B, T-1) or None are those of the next micro-batch.
    """

    places: Sequence[int] = ()
    base: torch.Tensor | None = None
    found: StepGap | None = None

    def __init__(self, group: Any) -> None:
        self._group, self._rollouts = group, dict[int, float | None]()
        self._sums = torch.zeros(len(fields(GapSums)), dtype=torch.float64)

    def add(self, log_probs: torch.Tensor, batch: Mapping[str, Any]) -> None:
        """Add a micro-batch: its log-probabilities (B, T-1), and what the host gives to its loss."""
        mask, rollout = batch["action_mask"], batch["rollout_log_probs"]
        self._sums = self._sums.to(log_probs.device) + sums_of(mask, rollout, log_probs, self.base)
        self._rollouts.update(zip(self.places, rollout_gaps(mask, rollout, log_probs), strict=True))

    def check(self) -> None:
        """Put the ranks' parts together. Raises PolicyMismatchError on all of them if the gap is above the limit."""
        rollouts = [self._rollouts] * distributed.get_world_size(self._group)
        distributed.all_reduce(self._sums, group=self._group)
        distributed.all_gather_object(rollouts, self._rollouts, group=self._group)
        self.found = StepGap(GapSums(*self._sums.tolist()), dict(ChainMap(*rollouts)))
        refuse_mismatch(logprob_gap(self.found.sums), config_here().logprob_gap_limit)


@contextmanager
def checked_step(trainer: Any, own: OwnLogProbs) -> Iterator[None]:
    """Within the block, the gap is checked just before DeepSpeed changes the weights.

    The host calls `optimizer_step` (utils/deepspeed/deepspeed.py) after every micro-batch, and DeepSpeed steps after
    the last; with dynamic batches only then. Raises ConfigError for a model whose training drops out activations.
    """
    strategy, engine = trainer.strategy, trainer.actor.model
    if drops := {name: value for name, value in vars(engine.module.config).items() if DROPS.search(name) and value}:
        raise ConfigError(
            f"The model's configuration has {drops}, so that a training step's log-probabilities are not the old "
            "policy's. Set own_old_log_probs to false."
        )
    step = strategy.optimizer_step

    def optimizer_step(*given: Any, **named: Any) -> None:
        if trainer.args.train.dynamic_batch_enable or engine.is_gradient_accumulation_boundary():
            own.check()
        step(*given, **named)

    with patch.object(strategy, "optimizer_step", optimizer_step):
        yield


@contextmanager
def weighted_kl(trainer: Any, weights: torch.Tensor) -> Iterator[list[torch.Tensor]]:
    """Within the block, the trainer multiplies each rollout's KL by its weight (u_x, eq. 6).

    `weights` is (B,). Yields a list to which the unweighted KL, (B, T), is appended when it is computed.
    `compute_approx_kl` is replaced because training_step (trainer/ray/ppo_actor.py) computes and aggregates KL in one
    step; this can go when the host takes a KL weight for each sample.
    """
    host_module: Any = sys.modules[type(trainer).__module__]
    original = host_module.compute_approx_kl
    unweighted: list[torch.Tensor] = []

    def weighted(*args: Any, **kwargs: Any) -> torch.Tensor:
        if trainer.actor_loss_fn.own is not None and "log_probs_old" in kwargs:
            kwargs["log_probs_old"] = args[0].detach()
        per_token: torch.Tensor = original(*args, **kwargs)
        unweighted.append(per_token.detach())
        return per_token * weights.to(per_token).unsqueeze(-1)

    with patch.object(host_module, "compute_approx_kl", weighted):
        yield unweighted


def ppo_train(wrapped: Callable[..., Any], trainer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One training step. Adds the step's token means and peak memory to the host's numbers.

    With `seeded_rollouts`, torch's generator, which shuffles micro-batches, is seeded by the number of optimizer steps
    so far. DeepSpeed keeps that number in its checkpoints, so a resumed run shuffles as before.
    """
    if config_here().seeded_rollouts:
        torch.manual_seed(seed_of("shuffle", trainer.args.train.seed, trainer.actor.model.global_steps))
    group = trainer.strategy.ds_device_mesh["dp"].get_group()
    own = OwnLogProbs(group) if config_here().own_old_log_probs else None
    with (
        patch.object(trainer, "actor_loss_fn", PairedLoss(trainer.actor_loss_fn)) as loss,
        checked_step(trainer, own) if own else nullcontext(),
    ):
        loss.own = own
        status = wrapped(*args, **kwargs)
    gap = {GAP_OF_STEP: own.found} if own else {}
    return {**status, **loss.sums.over_ranks(group), **peak_memory(trainer.strategy), **gap}


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
    if loss.own is not None:
        loss.own.places = column(experience.info, PLACE).int().tolist()
        loss.own.base = experience.base_action_log_probs
        del experience.info[PLACE]
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
