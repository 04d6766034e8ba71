"""Wraps DeepspeedStrategy.save_ckpt: a checkpoint that would not fit is refused before the host deletes an old one."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from restrain_openrlhf.errors import CheckpointError
from restrain_openrlhf.hook.lora import without_base

# A trained parameter in bf16 (2) with its fp32 master weight and Adam's two moments (12), and a tenth for the rest.
BYTES_PER_PARAMETER = 14 * 1.1
GIGABYTE = 10**9


def save_ckpt(wrapped: Callable[..., None], strategy: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises CheckpointError where the disk is too full, before or while writing; older checkpoints stay usable."""
    model, folder = args[0], Path(args[1])
    check_space(folder, checkpoint_bytes(model.parameters()))
    try:
        with without_base(strategy, model):
            wrapped(*args, **kwargs)
    except OSError as error:
        raise CheckpointError(_advice(folder, f"writing failed: {error}")) from error
    except RuntimeError as error:
        # torch.save reports a full disk as a RuntimeError of its own zip writer.
        if "PytorchStreamWriter" not in str(error) and "unexpected pos" not in str(error):
            raise
        raise CheckpointError(_advice(folder, f"writing failed: {error}")) from error


def checkpoint_bytes(parameters: Iterable[Any]) -> int:
    """About how many bytes DeepSpeed's checkpoint of these parameters has, over all ranks: 112 GB for 8B parameters.

    Frozen ones, a LoRA run's base, are left out of it.
    """
    return int(sum(_elements(each) for each in parameters if each.requires_grad) * BYTES_PER_PARAMETER)


def _elements(parameter: Any) -> int:
    """Of the whole parameter: ZeRO 3 leaves an empty one in its place, and its size in `ds_numel`."""
    count: int = parameter.ds_numel if hasattr(parameter, "ds_numel") else parameter.numel()
    return count


def check_space(folder: Path, needed: int) -> None:
    """Raises CheckpointError when fewer than `needed` bytes are free where `folder` is or will be."""
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise CheckpointError(_advice(folder, f"needs about {_size(needed)}, {_size(free)} are free"))


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= GIGABYTE else f"{count / 1e6:.0f} MB"


def _advice(folder: Path, found: str) -> str:
    return (
        f"The checkpoint under {folder} cannot be saved: {found}. Free some space (or lower ckpt.max_num) and start "
        "the same command again: training goes on from the last complete checkpoint."
    )
