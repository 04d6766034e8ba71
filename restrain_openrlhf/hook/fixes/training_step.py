"""The host's training step, mended: its gradients are whole, and returns, masks and log-probabilities cost less.

Each function names the file of the host or of a library that makes it necessary, and when it can go.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from restrain_openrlhf.errors import HostError
from restrain_openrlhf.machine.host_releases import LOSING_STAGES, why_gradients_are_lost

# Tokens whose logits are processed at a time, so that there is never a second tensor of all logits.
CHUNK = 1024
_read_again = ContextVar("_read_again", default=False)


def get_ds_train_config(
    wrapped: Callable[..., dict[str, Any]], strategy: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The host's configuration of DeepSpeed, changed so that an accumulation of gradients ends at `step()`.

    With dynamic batching the host tells DeepSpeed that each optimizer step has one micro-batch (utils/deepspeed/
    deepspeed.py). ZeRO 1 and 2 of DeepSpeed 0.19.6 then overwrite the gradient at every backward pass
    (runtime/zero/stage_1_and_2.py, independent_gradient_partition_epilogue), and the step only uses the last one. This
    can go when the host sets `managed_gradient_accumulation` itself. Raises HostError for a DeepSpeed without this
    setting.
    """
    config = wrapped(*args, **kwargs)
    if reason := why_gradients_are_lost(strategy.use_dynamic_batch, strategy.stage):
        raise HostError(reason)
    if strategy.use_dynamic_batch and strategy.stage in LOSING_STAGES:
        config["managed_gradient_accumulation"] = False
    return config


def get_all_grad_tensors(
    wrapped: Callable[..., list[Any]], optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    """The gradients of a micro-batch, in the type that `ds.grad_accum_dtype` asks for.

    DeepSpeed 0.19.6 returns them in the weights' type (runtime/zero/stage_1_and_2.py), so ZeRO 2 adds up in bf16
    whatever is asked for: over 512 micro-batches the sum is 7 % off, and its norm 4 % too small. This can go when
    DeepSpeed's own sum is in the type asked for.
    """
    tensors, dtype = inspect.signature(wrapped).bind(*args, **kwargs).args
    gradients = wrapped(*args, **kwargs)
    group = next(index for index, each in enumerate(optimizer.params_in_partition) if each is tensors)
    if optimizer.all_grad_tensors.get(group) is not None:
        # DeepSpeed adds them to the sum so far, which keeps its type.
        return gradients
    return [gradient.to(dtype) for gradient in gradients]


def get_cumulative_returns(
    wrapped: Callable[..., torch.Tensor], maker: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> torch.Tensor:
    """Wraps RemoteExperienceMaker.get_cumulative_returns: rewards (B, T) become sums over what follows, (B, T).

    The numbers are the same except for rounding. A hooked run always has the estimator group_norm, which does not
    discount (trainer/ppo_utils/experience_maker.py, compute_advantages_and_returns); with a discount the host's loop
    runs.
    """
    rewards, mask, gamma = args
    if gamma != 1.0:
        return wrapped(*args, **kwargs)
    masked: torch.Tensor = rewards if mask is None else mask * rewards
    return masked.flip(1).cumsum(1).flip(1)


def ignore_causal_mask(
    wrapped: Callable[..., bool], _module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Wraps transformers' _ignore_causal_mask_sdpa: whether torch's `is_causal` can replace a mask of padding.

    A causal token only looks back, where a batch padded on the right has no padding. With a mask, torch repeats keys
    and values for every query head and does not use its flash kernel (transformers/integrations/sdpa_attention.py), and
    the mask has B x T x T elements. Without one, only the outputs of padding tokens differ, which OpenRLHF's action
    mask drops. Other reasons for a mask, such as a sliding window, are left to transformers' own rules. This can go
    when transformers leaves the mask out by itself (masking_utils.py).
    """
    given = inspect.signature(wrapped).bind(*args, **kwargs)
    padding = given.arguments["padding_mask"]
    # Code that is being compiled cannot read the values of a tensor.
    asked = padding is not None and not torch.compiler.is_compiling()
    if asked and _is_square(given.arguments) and is_right_padded(padding):
        given.arguments["padding_mask"] = None
    return wrapped(*given.args, **given.kwargs)


def _is_square(given: dict[str, Any]) -> bool:
    """Whether queries and keys are of the same tokens, with no keys from a cache.

    transformers 5.7 calls it `query_length`, and has no `q_offset`.
    """
    queries = given["q_length"] if "q_length" in given else given["query_length"]
    lengths = {given["padding_mask"].shape[-1], queries, given["kv_length"]}
    return len(lengths) == 1 and given.get("q_offset", 0) == given["kv_offset"] == 0


def is_right_padded(mask: torch.Tensor) -> bool:
    """Whether no token comes after padding, in any row of a boolean mask (B, T)."""
    return bool((mask[:, 1:] <= mask[:, :-1]).all())


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
    """ln p of each label: logits (..., V) and labels (...) give (...). The backward pass overwrites the logits.

    Without flash-attn, bit for bit what the host (models/utils.py) computes, which needs 16 bytes per logit in the
    backward pass: for a vocabulary of 150,000, more than the rest of a micro-batch. This needs 6
    (tests/hook/test_log_probs.py measures both). It can go when the host's cross entropy works in place.
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
