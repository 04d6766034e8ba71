"""Wraps transformers' _ignore_causal_mask_sdpa: a batch that is only padded on the right needs no attention mask.

A causal token only looks back, where there is no padding. With a mask, torch repeats keys and values for every query
head and does not use its flash kernel (transformers/integrations/sdpa_attention.py), and the mask itself has B x T x T
elements. Without one, torch is told `is_causal`. This only changes the outputs of padding tokens, which OpenRLHF's
action mask drops. It can go when transformers leaves the mask out by itself (masking_utils.py).
"""

from collections.abc import Callable
from inspect import signature
from typing import Any

import torch


def ignore_causal_mask(
    wrapped: Callable[..., bool], _module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Whether torch's `is_causal` can replace the mask. transformers asks this where only padding is masked.

    Other reasons for a mask, such as a sliding window, are left to transformers' own rules, applied as if nothing were
    padded.
    """
    given = signature(wrapped).bind(*args, **kwargs)
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
