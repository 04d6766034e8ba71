"""Replaces how DeepspeedStrategy saves: a checkpoint counts once it is whole, and only then is another one deleted."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from restrain_openrlhf.config.memory.lines import GIB
from restrain_openrlhf.data.outputs import write_whole
from restrain_openrlhf.errors import CheckpointError
from restrain_openrlhf.hook.fixes import lora
from restrain_openrlhf.records.inputs import ACTOR, LATEST

# The suffix of a model's folder while it is written; the folder of a whole model never has it.
PARTIAL = ".partial"
BEST = "best"
CONFIG = "config.json"
ZIP_WRITER = ("PytorchStreamWriter", "unexpected pos")


@dataclass(frozen=True)
class Saving:
    """The arguments of the host's save_ckpt, with its defaults: write DeepSpeed's checkpoint `tag` in `save_dir`.

    At most `max_num` checkpoints of `max_mem` GiB together may remain.
    """

    model: Any
    save_dir: str
    tag: str | None = None
    max_num: int = 3
    max_mem: float = 1000
    client_state: Mapping[str, Any] | None = None
    save_latest: bool = True
    metric_value: float | None = None
    metric_key: str | None = None

    @property
    def folder(self) -> Path:
        """The checkpoint's folder.

        Without a tag DeepSpeed names it by its own step (runtime/engine.py, save_checkpoint).
        """
        return Path(self.save_dir, self.tag if self.tag is not None else f"global_step{self.model.global_steps}")


def save_ckpt(_wrapped: Callable[..., None], strategy: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Replaces the host's save_ckpt, which deletes old checkpoints, even the only one, before it writes the next.

    Here `latest` names the new checkpoint once every rank has written its part, and only then are surplus checkpoints
    deleted. This can go when OpenRLHF does so (utils/deepspeed/deepspeed.py). Raises CheckpointError if the
    checkpoint cannot be written, as on a full disk; older ones stay usable.
    """
    saving = Saving(*args, **kwargs)
    try:
        with lora.without_base(strategy, saving.model):
            _write(strategy, saving)
    except (OSError, RuntimeError) as error:
        # torch.save reports a full disk as a RuntimeError of its zip writer.
        if isinstance(error, RuntimeError) and not any(word in str(error) for word in ZIP_WRITER):
            raise
        raise CheckpointError(
            f"The checkpoint under {saving.save_dir} could not be written: {error}. Free some space (or lower "
            "ckpt.max_num) and start the same command again: training resumes from the last complete checkpoint."
        ) from error
    if strategy.is_rank_0():
        delete_surplus(strategy, saving)


def _write(strategy: Any, saving: Saving) -> None:
    """Write the checkpoint, then `latest`.

    DeepSpeed itself writes `latest` on rank 0 without waiting for the other ranks. Its save_checkpoint ends at a
    barrier, so that afterwards all parts are written.
    """
    state = dict(saving.client_state or {})
    saving.model.save_checkpoint(saving.save_dir, tag=saving.tag, client_state=state, save_latest=False)
    if not strategy.is_rank_0():
        return
    folder = saving.folder
    if saving.tag is not None:
        strategy._write_ckpt_metric(str(folder), saving.metric_value, metric_key=saving.metric_key)
    if saving.save_latest:
        write_whole(folder.with_name(LATEST), folder.name)


def delete_surplus(strategy: Any, saving: Saving) -> None:
    """Delete older checkpoints, in the host's order, until their number and size are within the limits.

    A new best checkpoint replaces the earlier best ones. The others go in this order: those that a killed run has left
    unfinished, those without a metric, then by their metric, the worst first; among equals the oldest goes first.
    """
    new = saving.folder
    others = [path for path in new.parent.iterdir() if path.is_dir() and path != new]
    best = [path for path in others if path.name.startswith(BEST)]
    regular = sorted((path for path in others if path not in best), key=lambda path: _worth(strategy, path))
    if new.name.startswith(BEST):
        for path in best:
            shutil.rmtree(path)
        best = []
    most = saving.max_num - (not new.name.startswith(BEST))
    while regular and (len(regular) > most or _bytes([*regular, *best]) > saving.max_mem * GIB):
        shutil.rmtree(regular.pop(0))


def _worth(strategy: Any, checkpoint: Path) -> tuple[bool, bool, float, float]:
    """The key by which checkpoints are deleted, lowest first.

    The host writes the file of a checkpoint's metric last, even without a metric, so a checkpoint without that file is
    unfinished.
    """
    metric = strategy._read_ckpt_metric(str(checkpoint))
    is_whole = Path(strategy._get_ckpt_metric_path(str(checkpoint))).exists()
    return is_whole, metric is not None, float("-inf") if metric is None else metric, checkpoint.stat().st_mtime


def _bytes(folders: Sequence[Path]) -> int:
    return sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())


def drop_unfinished(flags: Mapping[str, Any]) -> None:
    """Remove a first checkpoint that a killed run did not finish; the host would try to resume from it, and fail.

    The host takes any folder of that name for a checkpoint (trainer/ppo_trainer.py, init_checkpoint_states).
    """
    for folder in (Path(flags["ckpt.path"], name) for name in (ACTOR, "_critic")):
        if flags["ckpt.load_enable"] and folder.is_dir() and not (folder / LATEST).exists():
            shutil.rmtree(folder)


def save_model(wrapped: Callable[..., None], strategy: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Give a Hugging Face folder its name once it is whole; an earlier folder stays until then.

    The host writes straight into the folder, weights first and the tokenizer last (utils/deepspeed/deepspeed.py).
    """
    model, tokenizer, output_dir = args
    folder = Path(output_dir).absolute()
    partial = folder.with_name(folder.name + PARTIAL)
    if strategy.is_rank_0():
        for unfinished in {partial, *folder.parent.glob(f"*global_step*_hf{PARTIAL}")}:
            shutil.rmtree(unfinished, ignore_errors=True)
    lora.save_model(wrapped, strategy, (model, tokenizer, str(partial)), kwargs)
    if strategy.is_rank_0():
        _to_disk(partial)
        _take_place(partial, folder)


def _take_place(partial: Path, folder: Path) -> None:
    """Move a whole model into its folder, which may hold other files: by default, checkpoints are in it.

    config.json is removed first and moved last, because without it no reader takes the folder for a model.
    """
    if not folder.exists():
        partial.rename(folder)
        return
    (folder / CONFIG).unlink(missing_ok=True)
    for path in sorted(partial.iterdir(), key=lambda path: path.name == CONFIG):
        target = folder / path.name
        if target.is_dir():
            shutil.rmtree(target)
        path.replace(target)
    partial.rmdir()


def _to_disk(folder: Path) -> None:
    """Flush all files to disk, so that a machine that stops does not leave empty files in the folder."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
