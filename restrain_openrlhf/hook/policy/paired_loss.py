"""The m-label loss (eq. 6) from two calls of the host's own loss, and u_x on the KL term."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from restrain_openrlhf.hook.policy.token_means import TokenSums


class PairedLoss(nn.Module):
    """Sum of the host's loss under A⁺ and under A⁻: exactly sum_j w_j loss(A_j), clipped or not.

    Derivation: docs/concepts/method.md. `sums` are the training step's, for its token means.
    `host_loss` is OpenRLHF's PolicyLoss (models/loss.py); any loss positively homogeneous in the advantage will do.
    """

    def __init__(self, host_loss: nn.Module) -> None:
        super().__init__()
        self.host_loss = host_loss
        self.batch: dict[str, Any] = {}
        self.sums = TokenSums()

    def forward(
        self, log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, **batch: Any
    ) -> tuple[torch.Tensor, ...]:
        """As the host's, but `advantages` is (2, B, 1): A⁺ and A⁻ of each rollout.

        A token is clipped under A⁺ or under A⁻, never both, so the clip ratios add up; the other diagnostics do not
        depend on the advantage. `batch` is kept until the next call: it says what the sums were divided by.
        """
        self.batch = batch
        positive, negative = advantages
        loss_positive, clipped_above, *diagnostics = self.host_loss(log_probs, old_log_probs, positive, **batch)
        loss_negative, clipped_below, *_ = self.host_loss(log_probs, old_log_probs, negative, **batch)
        return (loss_positive + loss_negative, clipped_above + clipped_below, *diagnostics)


@contextmanager
def paired(trainer: Any) -> Iterator[PairedLoss]:
    """Within the block, the host's ActorPPOTrainer (trainer/ray/ppo_actor.py) has its loss under both advantages."""
    host_loss = trainer.actor_loss_fn
    trainer.actor_loss_fn = PairedLoss(host_loss)
    try:
        yield trainer.actor_loss_fn
    finally:
        trainer.actor_loss_fn = host_loss


@contextmanager
def weighted_kl(trainer: Any, weights: torch.Tensor) -> Iterator[list[torch.Tensor]]:
    """Within the block, the trainer's module has each rollout's KL times its weight (u_x, eq. 6).

    `weights` is (B,). Yields a list that gets the KL without its weights, (B, T), when it is computed.
    `compute_approx_kl` is rebound because training_step (trainer/ray/ppo_actor.py) computes and aggregates KL in one
    go; this can go when the host takes per-sample KL weights.
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
