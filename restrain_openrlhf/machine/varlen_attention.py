"""Packed rollouts by torch's own flash kernel (torch.nn.attention.varlen), where flash-attn is not built.

A configuration asks for it by name: `ds.attn_implementation: torch_flash_attention`. OpenRLHF packs with an attention
whose name has "flash_attention" in it alone (cli/train_ppo_ray.py), and transformers would load a kernel for such a
name, so that it knows ours by another. This can go when either takes torch's by itself.
"""

from collections.abc import Callable
from typing import Any

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.machine.patching import Wrapping

NAME = "torch_flash_attention"
NAME_IN_TRANSFORMERS = "torch_varlen"
# What looks back at all of its own sequence, in torch's words.
CAUSAL = (-1, 0)


def name_in_transformers(attention: str) -> str:
    """The attention as transformers' models take it, which from then on know ours."""
    if attention != NAME:
        return attention
    from transformers import AttentionInterface  # noqa: PLC0415 - costs seconds

    AttentionInterface.register(NAME_IN_TRANSFORMERS, varlen_attention)
    return NAME_IN_TRANSFORMERS


def initialise_actor(wrapped: Callable[..., None], _actor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Wraps Actor.__init__ (models/actor.py), where the flag's value goes to transformers."""
    if attention := kwargs.get("attn_implementation"):
        kwargs = {**kwargs, "attn_implementation": name_in_transformers(attention)}
    wrapped(*args, **kwargs)


def varlen_attention(
    _module: Any,
    query: Any,
    key: Any,
    value: Any,
    _attention_mask: None,
    scaling: float | None = None,
    position_ids: Any = None,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[Any, None]:
    """Causal attention of (B, heads, T, d), back as (B, T, heads, d); a sequence begins wherever the position is 0.

    transformers gives an attention that it has no mask for none. Padding on the right counts as the end of its row's
    sequence, which nothing else looks at. Raises ConfigError for a sliding window.
    """
    import torch  # noqa: PLC0415 - the caller has it
    from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415 - by then the CPU's stand-in is in its place

    if sliding_window is not None:
        raise ConfigError(
            f"ds.attn_implementation is {NAME!r}, and this model has a sliding window of {sliding_window} tokens, "
            "which it does not do. Use sdpa without packing, or flash_attention_2."
        )
    batch, heads, length, _ = query.shape
    if position_ids is None:
        position_ids = torch.arange(length, device=query.device)[None]
    begins = (position_ids.expand(batch, length).reshape(-1) == 0).nonzero().flatten()
    bounds = torch.nn.functional.pad(begins, (0, 1), value=batch * length).to(torch.int32)
    longest = int(bounds.diff().max())
    q, k, v = (each.transpose(1, 2).flatten(0, 1) for each in (query, key, value))
    limits, grouped = (bounds, bounds, longest, longest), key.shape[1] < heads
    found: Any = varlen_attn(q, k, v, *limits, scale=scaling, window_size=CAUSAL, enable_gqa=grouped)
    return found.unflatten(0, (batch, length)), None


ATTENTION = Wrapping(
    "openrlhf.models.actor",
    "Actor.__init__",
    "(self, pretrain_or_model, attn_implementation, param_dtype, load_in_4bit, lora_rank, lora_alpha, lora_dropout, "
    "target_modules, ds_config, device_map, packing_samples, temperature, use_liger_kernel, freeze_visual_encoder, "
    "experts_implementation, **kwargs)",
    "restrain_openrlhf.machine.varlen_attention:initialise_actor",
)
