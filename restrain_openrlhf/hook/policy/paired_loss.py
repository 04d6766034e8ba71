"""The m-label loss (eq. 6) as two calls of the host's own loss, and the factor u_x of the KL term."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from restrain_openrlhf.hook.policy.token_means import TokenSums


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

    def forward(
        self, log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, **batch: Any
    ) -> tuple[torch.Tensor, ...]:
        """The host's arguments and results, but `advantages` is (2, B, 1): A⁺ and A⁻ of each rollout.

        A token is clipped under A⁺ or under A⁻, never under both, so the clip ratios are added; the other diagnostics
        do not depend on the advantage. `batch` is kept until the next call, because it says what the host divided its
        sums by.
        """
        self.batch = batch
        positive, negative = advantages
        loss_positive, clipped_above, *diagnostics = self.host_loss(log_probs, old_log_probs, positive, **batch)
        loss_negative, clipped_below, *_ = self.host_loss(log_probs, old_log_probs, negative, **batch)
        return (loss_positive + loss_negative, clipped_above + clipped_below, *diagnostics)


@contextmanager
def paired(trainer: Any) -> Iterator[PairedLoss]:
    """Within the block, the host's ActorPPOTrainer (trainer/ray/ppo_actor.py) computes the paired loss."""
    host_loss = trainer.actor_loss_fn
    trainer.actor_loss_fn = PairedLoss(host_loss)
    try:
        yield trainer.actor_loss_fn
    finally:
        trainer.actor_loss_fn = host_loss


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
        per_token: torch.Tensor = original(*args, **kwargs)
        unweighted.append(per_token.detach())
        return per_token * weights.to(per_token).unsqueeze(-1)

    host_module.compute_approx_kl = weighted
    try:
        yield unweighted
    finally:
        host_module.compute_approx_kl = original
