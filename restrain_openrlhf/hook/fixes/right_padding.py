"""Wraps transformers' _ignore_causal_mask_sdpa: a batch that is padded on the right alone needs no attention mask.

A causal token looks back, where padding on the right never is. With a mask, torch repeats keys and values for every
query head and leaves its flash kernel (transformers/integrations/sdpa_attention.py), and the mask itself is
B x T x T; without one, torch is told `is_causal`. Only what padding tokens compute changes, which OpenRLHF's action
mask drops. This can go when transformers leaves the mask out by itself (masking_utils.py).
"""

from collections.abc import Callable
from inspect import signature
from typing import Any

import torch


def ignore_causal_mask(
    wrapped: Callable[..., bool], _module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Whether torch's `is_causal` says all that the mask would; transformers asks where nothing but padding is added.

    Its own rules stay for what else forbids that, such as a sliding window; they are asked as if nothing were padded.
    """
    given = signature(wrapped).bind(*args, **kwargs)
    padding = given.arguments["padding_mask"]
    # What is being compiled cannot look at a tensor's values.
    asked = padding is not None and not torch.compiler.is_compiling()
    if asked and _is_square(given.arguments) and is_right_padded(padding):
        given.arguments["padding_mask"] = None
    return wrapped(*given.args, **given.kwargs)


def _is_square(given: dict[str, Any]) -> bool:
    """Each token's query meets the same tokens' keys, with none from a cache.

    transformers 5.7 says `query_length`, and has no offset of the queries.
    """
    queries = given["q_length"] if "q_length" in given else given["query_length"]
    lengths = {given["padding_mask"].shape[-1], queries, given["kv_length"]}
    return len(lengths) == 1 and given.get("q_offset", 0) == given["kv_offset"] == 0


def is_right_padded(mask: torch.Tensor) -> bool:
    """Whether in each row of a mask (B, T) of booleans no token comes after padding."""
    return bool((mask[:, 1:] <= mask[:, :-1]).all())
