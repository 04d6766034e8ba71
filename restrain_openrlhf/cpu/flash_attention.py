"""Stand-in for the parts of flash-attn that OpenRLHF imports without using them (models/ring_attn_utils.py)."""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import NoReturn

# ring_attn_utils.py imports these names; they run only with --ds.packing_samples or ring attention.
IMPORTED_BY_HOST = {
    "flash_attn": (),
    "flash_attn.bert_padding": ("index_first_axis", "pad_input", "rearrange", "unpad_input"),
    "flash_attn.utils": (),
    "flash_attn.utils.distributed": ("all_gather",),
}


def provide_flash_attention() -> None:
    """Put the stand-in modules in place unless a real flash-attn is installed. Safe to repeat."""
    if "flash_attn" in sys.modules or importlib.util.find_spec("flash_attn") is not None:
        return
    for name, functions in IMPORTED_BY_HOST.items():
        sys.modules[name] = _stand_in(name, functions)


def _stand_in(name: str, functions: tuple[str, ...]) -> ModuleType:
    module = ModuleType(name, "Stand-in: flash attention needs CUDA.")
    module.__spec__ = ModuleSpec(name, loader=None, is_package=not functions)
    module.__path__ = []
    for function in functions:
        setattr(module, function, _needs_cuda)
    # transformers reads the version of whatever calls itself flash_attn.
    module.__version__ = "0.0"  # type: ignore[attr-defined]
    return module


def _needs_cuda(*_: object, **__: object) -> NoReturn:
    raise RuntimeError(
        "flash-attn needs CUDA, and this run has none. Remove --ds.packing_samples, --train.dynamic_batch_enable "
        "and ring attention from the configuration, or run on a GPU."
    )
