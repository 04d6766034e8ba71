"""flash-attn where it is not built: what cannot run, and a stand-in for the parts that OpenRLHF imports unused."""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import NoReturn

from restrain_openrlhf.machine.device import Unsupported

# The part that a compiler for CUDA makes; flash_attn itself cannot be imported without it.
EXTENSION = "flash_attn_2_cuda"
# models/ring_attn_utils.py imports these names; they run only with --ds.packing_samples or ring attention.
IMPORTED_BY_HOST = {
    "flash_attn": (),
    "flash_attn.bert_padding": ("index_first_axis", "pad_input", "rearrange", "unpad_input"),
    "flash_attn.utils": (),
    "flash_attn.utils.distributed": ("all_gather",),
}


def has_extension() -> bool:
    """Whether flash-attn is installed with the part that runs on a GPU."""
    return importlib.util.find_spec(EXTENSION) is not None


def unsupported(reason: str) -> tuple[Unsupported, ...]:
    """What needs flash-attn. Dynamic batches and ring attention are packed (cli/train_ppo_ray.py)."""
    return (
        Unsupported("ds.packing_samples", f"packing needs flash-attn, {reason}"),
        Unsupported(
            "train.dynamic_batch_enable", f"dynamic batches are packed, and packing needs flash-attn, {reason}"
        ),
        Unsupported(
            "ds.attn_implementation", f"flash_attention_2 needs flash-attn, {reason}", value="flash_attention_2"
        ),
        Unsupported(
            "ds.ring_attn_size",
            f"ring attention packs, and packing needs flash-attn, {reason}",
            when=lambda flags: bool(flags["ds.ring_attn_size"] > 1),
        ),
    )


def provide_flash_attention() -> None:
    """Put the stand-in modules in place unless a flash-attn that works is installed. Safe to repeat."""
    if "flash_attn" in sys.modules or has_extension():
        return
    for name, functions in IMPORTED_BY_HOST.items():
        sys.modules[name] = _stand_in(name, functions)


def _stand_in(name: str, functions: tuple[str, ...]) -> ModuleType:
    module = ModuleType(name, "Stand-in: flash-attn is not installed.")
    module.__spec__ = ModuleSpec(name, loader=None, is_package=not functions)
    module.__path__ = []
    for function in functions:
        setattr(module, function, _needs_flash_attention)
    # transformers reads the version of whatever calls itself flash_attn.
    module.__version__ = "0.0"  # type: ignore[attr-defined]
    return module


def _needs_flash_attention(*_: object, **__: object) -> NoReturn:
    raise RuntimeError(
        "This needs flash-attn, which is not installed. Remove --ds.packing_samples, --train.dynamic_batch_enable and "
        "ring attention from the configuration, or run `make install-flash` on a machine with a GPU."
    )
