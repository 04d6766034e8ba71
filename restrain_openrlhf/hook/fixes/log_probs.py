"""Wraps log_probs_from_logits: the policy's backward pass writes the gradient of the logits over the logits.

Without flash-attn's cross entropy the host (models/utils.py) needs 16 bytes per logit in the backward pass, which for a
vocabulary of 150,000 is more than the rest of a micro-batch. This needs 6 (tests/hook/test_log_probs.py measures both).
It can go when the host's cross entropy works in place.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

# Tokens that are processed at a time, so that there is never a second tensor of all logits.
CHUNK = 1024
_read_again = ContextVar("_read_again", default=False)


@contextmanager
def logits_read_again(holds: bool) -> Iterator[None]:
    """Within the block, `holds` says that another backward pass, such as the entropy's, also reads the logits.

    Then they must not be overwritten.
    """
    token = _read_again.set(holds)
    try:
        yield
    finally:
        _read_again.reset(token)


def log_probs_from_logits(
    wrapped: Callable[..., torch.Tensor], _module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> torch.Tensor:
    """ln p of each label: logits (..., V) and labels (...) give (...).

    Without flash-attn, bit for bit what the host computes.
    """
    logits, labels, temperature = _bound(*args, **kwargs)
    if temperature != 1 or logits.dtype is not torch.float32 or not (torch.is_grad_enabled() and logits.requires_grad):
        return wrapped(*args, **kwargs)
    found: torch.Tensor = _LogProbs.apply(logits, labels, not _read_again.get())  # type: ignore[no-untyped-call]
    return found


def _bound(
    logits: torch.Tensor, labels: torch.Tensor, temperature: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor, float]:
    return logits, labels, temperature


class _LogProbs(torch.autograd.Function):
    """z_y − ln Σ exp z, and its gradient, 1[v = y] − exp(z_v − ln Σ exp z)."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor, in_place: bool) -> torch.Tensor:
        flat = logits.reshape(-1, logits.shape[-1])
        normalizer = torch.cat([flat[rows].logsumexp(-1) for rows in _chunks(len(flat))])
        ctx.save_for_backward(logits, labels, normalizer)
        ctx.in_place = in_place
        return logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1) - normalizer.view(labels.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        logits, labels, normalizer = ctx.saved_tensors
        found = logits if ctx.in_place else logits.clone()
        flat, chosen, gradient = found.view(-1, found.shape[-1]), labels.reshape(-1, 1), gradients[0].reshape(-1, 1)
        for rows in _chunks(len(flat)):
            flat[rows].sub_(normalizer[rows, None]).exp_().mul_(-gradient[rows])
            flat[rows].scatter_add_(1, chosen[rows], gradient[rows])
        return found, None, None


def _chunks(count: int) -> list[slice]:
    return [slice(start, start + CHUNK) for start in range(0, count, CHUNK)]
