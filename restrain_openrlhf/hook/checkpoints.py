"""Wraps DeepspeedStrategy.save_ckpt: a checkpoint that would not fit is refused before the host deletes an old one."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from restrain_openrlhf.errors import CheckpointError
from restrain_openrlhf.hook.lora import without_base

# bf16 parameters (2) with fp32 master weights and Adam's two moments (12), and a tenth for everything else.
BYTES_PER_PARAMETER = 14 * 1.1


def save_ckpt(wrapped: Callable[..., None], strategy: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises CheckpointError where the disk is too full, before or while writing; older checkpoints stay usable."""
    model, folder = args[0], Path(args[1])
    needed = int(
        sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad) * BYTES_PER_PARAMETER
    )
    check_space(folder, needed)
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


def check_space(folder: Path, needed: int) -> None:
    """Raises CheckpointError when fewer than `needed` bytes are free where `folder` is or will be."""
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise CheckpointError(_advice(folder, f"needs about {needed / 2**20:.0f} MiB, {free / 2**20:.0f} MiB are free"))


def _advice(folder: Path, found: str) -> str:
    return (
        f"The checkpoint under {folder} cannot be saved: {found}. Free some space (or lower ckpt.max_num) and start "
        "the same command again: training goes on from the last complete checkpoint."
    )
