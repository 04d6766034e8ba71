"""flash-attn where it is not built: what cannot run, and a stand-in for the parts that OpenRLHF imports."""

import importlib.util
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

from restrain_openrlhf.machine.device import Unsupported
from restrain_openrlhf.machine.varlen_attention import NAME

# The part that a compiler for CUDA makes; flash_attn itself cannot be imported without it.
EXTENSION = "flash_attn_2_cuda"


def has_extension() -> bool:
    """Whether flash-attn is installed with the part that runs on a GPU."""
    return importlib.util.find_spec(EXTENSION) is not None


def unsupported(reason: str) -> tuple[Unsupported, ...]:
    """What needs flash-attn. Dynamic batches and ring attention are packed (cli/train_ppo_ray.py)."""
    instead = f"ds.attn_implementation {NAME} packs by torch's own kernel"
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


def _packs_by_torch(flags: Mapping[str, Any]) -> bool:
    return bool(flags["ds.attn_implementation"] == NAME)


def provide_flash_attention() -> None:
    """Put the stand-in modules in place unless a flash-attn that works is installed. Safe to repeat."""
    if "flash_attn" in sys.modules or has_extension():
        return
    for name, functions in IMPORTED_BY_HOST.items():
        sys.modules[name] = _stand_in(name, functions)


def _stand_in(name: str, functions: Mapping[str, Callable[..., Any]]) -> ModuleType:
    module = ModuleType(name, "Stand-in: flash-attn is not installed.")
    module.__spec__ = ModuleSpec(name, loader=None, is_package=not functions)
    module.__path__ = []
    vars(module).update(functions)
    # transformers reads the version of whatever calls itself flash_attn.
    module.__version__ = "0.0"  # type: ignore[attr-defined]
    return module


def _unpad_input(values: Any, mask: Any) -> Any:
    """(B, T, ...) to (tokens, ...), with their places, the sequences' bounds and more."""
    from transformers.modeling_flash_attention_utils import _unpad_input  # noqa: PLC0415 - costs seconds

    return _unpad_input(values, mask)  # type: ignore[no-untyped-call]


def _pad_input(values: Any, indices: Any, batch: int, length: int) -> Any:
    from transformers.modeling_flash_attention_utils import _pad_input  # noqa: PLC0415

    return _pad_input(values, indices, batch, length)  # type: ignore[no-untyped-call]


def _index_first_axis(values: Any, indices: Any) -> Any:
    return values[indices]


def _rearrange(values: Any, pattern: str) -> Any:
    from einops import rearrange  # noqa: PLC0415 - flash-attn hands on the same

    return rearrange(values, pattern)


def _all_gather(*_: object) -> NoReturn:
    raise RuntimeError(
        "Ring attention needs flash-attn, which is not installed. Leave out --ds.ring_attn_size, or run "
        "`make install-flash` on a machine with a GPU."
    )


# What models/ring_attn_utils.py imports, and runs with --ds.packing_samples or ring attention.
IMPORTED_BY_HOST: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "flash_attn": {},
    "flash_attn.bert_padding": {
        "index_first_axis": _index_first_axis,
        "pad_input": _pad_input,
        "rearrange": _rearrange,
        "unpad_input": _unpad_input,
    },
    "flash_attn.utils": {},
    "flash_attn.utils.distributed": {"all_gather": _all_gather},
}
