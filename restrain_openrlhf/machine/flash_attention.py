"""Runs without flash-attn: flags to refuse, a stand-in for the host's imports, and torch's own flash attention.

A configuration asks for torch's kernel (torch.nn.attention.varlen) by `ds.attn_implementation: torch_flash_attention`,
and can then pack rollouts. OpenRLHF packs only if the attention's name contains "flash_attention"
(cli/train_ppo_ray.py). For such a name transformers would load a kernel, so there the attention is registered under
another name. This can go when OpenRLHF or transformers supports torch's kernel.
"""

import importlib.util
import re
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from operator import getitem
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.machine.device import Unsupported
from restrain_openrlhf.machine.host_releases import version_of
from restrain_openrlhf.machine.patching import Wrapping, load

# The compiled part of flash-attn, without which flash_attn cannot be imported.
EXTENSION = "flash_attn_2_cuda"
BY_TORCH = "torch_flash_attention"
BY_TORCH_IN_TRANSFORMERS = "torch_varlen"
# What varlen_attn is given by name. From torch 2.13 on it takes `enable_gqa`: query heads share key heads, as in all
# models of the presets.
TAKEN = ("scale", "window_size", "enable_gqa")
# torch's window size for causal attention over the whole sequence.
CAUSAL = (-1, 0)
# The attribute of a tensor of positions that keeps the bounds of its sequences.
KEPT = "_restrain_sequences"


def has_extension() -> bool:
    """Whether flash-attn is installed with its compiled part."""
    return importlib.util.find_spec(EXTENSION) is not None


def unsupported(reason: str) -> tuple[Unsupported, ...]:
    """Flags that need flash-attn. Dynamic batches and ring attention imply packing (cli/train_ppo_ray.py)."""
    instead = f"ds.attn_implementation {BY_TORCH} packs by torch's own kernel"
    return (
        Unsupported(
            "ds.packing_samples",
            f"packing needs flash-attn, {reason}, or {instead}",
            when=lambda flags: bool(flags["ds.packing_samples"]) and not _packs_by_torch(flags),
        ),
        Unsupported(
            "train.dynamic_batch_enable",
            f"dynamic batches are packed, and packing needs flash-attn, {reason}, or {instead}",
            when=lambda flags: bool(flags["train.dynamic_batch_enable"]) and not _packs_by_torch(flags),
        ),
        Unsupported(
            "ds.attn_implementation", f"flash_attention_2 needs flash-attn, {reason}", value="flash_attention_2"
        ),
        Unsupported(
            "ds.ring_attn_size",
            f"ring attention needs flash-attn, {reason}",
            when=lambda flags: bool(flags["ds.ring_attn_size"] > 1),
        ),
    )


def by_torch() -> tuple[Unsupported, ...]:
    """The flag that needs torch's own kernel, if the installed torch has none that takes what it is given."""
    reason = why_not_by_torch()
    return () if reason is None else (Unsupported("ds.attn_implementation", reason, value=BY_TORCH),)


def why_not_by_torch() -> str | None:
    """Why torch's own kernel cannot be used with the installed torch; None if it can, or if there is no torch."""
    found, torch = version_of("torch"), importlib.util.find_spec("torch")
    if found is None or torch is None:
        return None
    # Its file is read, because importing torch costs seconds.
    file = Path(str(torch.origin)).parent / "nn" / "attention" / "varlen.py"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    kernel = re.search(r"def varlen_attn\((.*?)\)\s*(?:->|:)", text, re.DOTALL)
    missing = [name for name in TAKEN if not (kernel and re.search(rf"\b{name}\b", kernel[1]))]
    needed = f"ds.attn_implementation {BY_TORCH} needs varlen_attn of torch 2.13 or newer"
    return f"{needed}; that of the installed torch {found} takes no {' and no '.join(missing)}" if missing else None


def _packs_by_torch(flags: Mapping[str, Any]) -> bool:
    return bool(flags["ds.attn_implementation"] == BY_TORCH)


def provide_flash_attention() -> None:
    """Put stand-in modules in place, unless a working flash-attn is installed. Safe to repeat."""
    if "flash_attn" in sys.modules or has_extension():
        return
    for name, functions in IMPORTED_BY_HOST.items():
        sys.modules[name] = _stand_in(name, functions)


def _stand_in(name: str, functions: Mapping[str, Callable[..., Any]]) -> ModuleType:
    module = ModuleType(name, "Stand-in: flash-attn is not installed.")
    module.__spec__ = ModuleSpec(name, loader=None, is_package=not functions)
    module.__path__ = []
    vars(module).update(functions)
    # transformers reads the version of any module called flash_attn.
    module.__version__ = "0.0"  # type: ignore[attr-defined]
    return module


def _imported_late(name: str) -> Callable[..., Any]:
    """The function `module:function`, whose module costs seconds and is imported at the first call."""
    return lambda *arguments: load(name)(*arguments)  # noqa: PLW0108 - load(name) would import it now


def _all_gather(*_: object) -> NoReturn:
    raise RuntimeError(
        "Ring attention needs flash-attn, which is not installed. Leave out --ds.ring_attn_size, or run "
        "`make install-flash` on a machine with a GPU."
    )


# Functions that OpenRLHF's models/ring_attn_utils.py imports, and calls for packing or ring attention.
IMPORTED_BY_HOST: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "flash_attn": {},
    "flash_attn.bert_padding": {
        "index_first_axis": getitem,
        "pad_input": _imported_late("transformers.modeling_flash_attention_utils:_pad_input"),
        # flash-attn, too, has this one from einops.
        "rearrange": _imported_late("einops:rearrange"),
        "unpad_input": _imported_late("transformers.modeling_flash_attention_utils:_unpad_input"),
    },
    "flash_attn.utils": {},
    "flash_attn.utils.distributed": {"all_gather": _all_gather},
}


def name_in_transformers(attention: str) -> str:
    """The attention's name in transformers; torch's is registered there first."""
    if attention != BY_TORCH:
        return attention
    from transformers import AttentionInterface  # noqa: PLC0415 - costs seconds

    AttentionInterface.register(BY_TORCH_IN_TRANSFORMERS, varlen_attention)
    return BY_TORCH_IN_TRANSFORMERS


def initialise_actor(wrapped: Callable[..., None], _actor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Wraps Actor.__init__ (models/actor.py), which hands the flag's value to transformers."""
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
    """Causal attention from (B, heads, T, d) to (B, T, heads, d). A sequence begins at each position 0.

    The mask is None, because transformers has no mask function for this attention. Padding on the right becomes the end
    of its row's last sequence, to which no earlier token attends. Raises ConfigError for a sliding window.
    """
    import torch  # noqa: PLC0415 - the caller has it
    from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415 - by then the CPU's stand-in is in its place

    if sliding_window is not None:
        raise ConfigError(
            f"ds.attn_implementation is {BY_TORCH!r}, which does not support this model's sliding window of "
            f"{sliding_window} tokens. Use sdpa without packing, or flash_attention_2."
        )
    batch, heads, length, _ = query.shape
    if position_ids is None:
        position_ids = torch.arange(length, device=query.device)[None]
    bounds, longest = _sequences(position_ids, batch, length)
    q, k, v = (each.transpose(1, 2).flatten(0, 1) for each in (query, key, value))
    limits, grouped = (bounds, bounds, longest, longest), key.shape[1] < heads
    found: Any = varlen_attn(q, k, v, *limits, scale=scaling, window_size=CAUSAL, enable_gqa=grouped)
    return found.unflatten(0, (batch, length)), None


def _sequences(position_ids: Any, batch: int, length: int) -> tuple[Any, int]:
    """Where each sequence begins, with the end of the last, and the tokens of the longest.

    For both the device must finish its work, so the layers of a forward pass, which share one tensor of positions, ask
    once: what was found stays with that tensor until somebody writes to it.
    """
    import torch  # noqa: PLC0415 - the caller has it

    key = position_ids._version, batch, length
    kept: Mapping[tuple[int, int, int], tuple[Any, int]] = getattr(position_ids, KEPT, {})
    if key in kept:
        return kept[key]
    begins = (position_ids.expand(batch, length).reshape(-1) == 0).nonzero().flatten()
    bounds = torch.nn.functional.pad(begins, (0, 1), value=batch * length).to(torch.int32)
    found = bounds, int(bounds.diff().max())
    setattr(position_ids, KEPT, {key: found})
    return found


ATTENTION = Wrapping(
    "openrlhf.models.actor",
    "Actor.__init__",
    "(self, pretrain_or_model, attn_implementation, param_dtype, load_in_4bit, lora_rank, lora_alpha, lora_dropout, "
    "target_modules, ds_config, device_map, packing_samples, temperature, use_liger_kernel, freeze_visual_encoder, "
    "experts_implementation, **kwargs)",
    "restrain_openrlhf.machine.flash_attention:initialise_actor",
)
