"""torch's variable-length attention on a CPU, where its flash kernel is not: one sequence after the other."""

from typing import Any


def varlen_attn(_wrapped: object, _module: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """In the place of torch.nn.attention.varlen.varlen_attn, as machine/varlen_attention.py calls it."""
    return _one_after_the_other(*args, **kwargs)


def _one_after_the_other(
    query: Any,
    key: Any,
    value: Any,
    bounds: Any,
    _bounds_of_keys: Any,
    _longest: int,
    _longest_of_keys: int,
    *,
    scale: float | None,
    window_size: tuple[int, int],
    enable_gqa: bool,
) -> Any:
    """(tokens, heads, d) of sequences whose bounds are given (their number and one), causal in each."""
    import torch  # noqa: PLC0415 - the caller has it

    lengths, is_causal = bounds.diff().tolist(), window_size == (-1, 0)
    whole = (each.transpose(0, 1).unsqueeze(0).split(lengths, dim=2) for each in (query, key, value))
    attention = torch.nn.functional.scaled_dot_product_attention
    found = [
        attention(q, k, v, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa)
        for q, k, v in zip(*whole, strict=True)
    ]
    return torch.cat(found, dim=2)[0].transpose(0, 1)
