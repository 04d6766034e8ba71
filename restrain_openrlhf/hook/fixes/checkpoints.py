"""How DeepspeedStrategy saves, taken over: a checkpoint counts once it is whole, and only then is another deleted."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any, Self

from restrain_openrlhf.data.outputs import whole_file
from restrain_openrlhf.errors import CheckpointError
from restrain_openrlhf.hook.fixes import lora
from restrain_openrlhf.records.contents import ACTOR, LATEST

GIBIBYTE = 2**30
# A model's folder while it is written; no folder of a whole model is called so.
PARTIAL = ".partial"
BEST = "best"
CONFIG = "config.json"
ZIP_WRITER = ("PytorchStreamWriter", "unexpected pos")


@dataclass(frozen=True)
class Saving:
    """What the host asks for: DeepSpeed's checkpoint `tag` in `save_dir`, beside at most `max_num`, `max_mem` GiB."""

    model: Any
    save_dir: str
    tag: str | None
    max_num: int
    max_mem: float
    client_state: Mapping[str, Any] | None
    save_latest: bool
    metric_value: float | None
    metric_key: str | None

    @classmethod
    def of(cls, wrapped: Callable[..., None], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Self:
        """The arguments of the host's call, its defaults included."""
        given = signature(wrapped).bind(*args, **kwargs)
        given.apply_defaults()
        return cls(**given.arguments)

    @property
    def folder(self) -> Path:
        """The checkpoint's; without a tag DeepSpeed counts its own steps (runtime/engine.py, save_checkpoint)."""
        return Path(self.save_dir, self.tag if self.tag is not None else f"global_step{self.model.global_steps}")


def save_ckpt(wrapped: Callable[..., None], strategy: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """In the place of the host's, which deletes old checkpoints, even the only one, before it writes the next.

    Here `latest` names the new one once every rank has written its part, and what is too much is deleted after that.
    Can go when OpenRLHF does so (utils/deepspeed/deepspeed.py). Raises CheckpointError where it cannot be written, as
    on a full disk; older checkpoints stay usable.
    """
    saving = Saving.of(wrapped, args, kwargs)
    try:
        with lora.without_base(strategy, saving.model):
            _write(strategy, saving)
    except (OSError, RuntimeError) as error:
        # torch.save reports a full disk as a RuntimeError of its own zip writer.
        if isinstance(error, RuntimeError) and not any(word in str(error) for word in ZIP_WRITER):
            raise
        raise CheckpointError(
            f"The checkpoint under {saving.save_dir} could not be written: {error}. Free some space (or lower "
            "ckpt.max_num) and start the same command again: training resumes from the last complete checkpoint."
        ) from error
    if strategy.is_rank_0():
        delete_surplus(strategy, saving)


def _write(strategy: Any, saving: Saving) -> None:
    """DeepSpeed's own `latest` is rank 0's, which does not wait for the others; its method ends at a barrier."""
    state = dict(saving.client_state or {})
    saving.model.save_checkpoint(saving.save_dir, tag=saving.tag, client_state=state, save_latest=False)
    if not strategy.is_rank_0():
        return
    folder = saving.folder
    if saving.tag is not None:
        strategy._write_ckpt_metric(str(folder), saving.metric_value, metric_key=saving.metric_key)
    if saving.save_latest:
        with whole_file(folder.with_name(LATEST)) as file:
            file.write(folder.name)


def delete_surplus(strategy: Any, saving: Saving) -> None:
    """Delete the checkpoints beside the new one that are too many or too large, in the host's order.

    A new best one takes the place of the earlier best ones. The others go by their metric: those without one first,
    then the worst, the oldest first. Those that a killed run has left unfinished go before all of them.
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
    while regular and (len(regular) > most or _bytes([*regular, *best]) > saving.max_mem * GIBIBYTE):
        shutil.rmtree(regular.pop(0))


def _worth(strategy: Any, checkpoint: Path) -> tuple[bool, bool, float, float]:
    """The host writes a checkpoint's metric, be it none, after all else: without that file it is not whole."""
    metric = strategy._read_ckpt_metric(str(checkpoint))
    is_whole = Path(strategy._get_ckpt_metric_path(str(checkpoint))).exists()
    return is_whole, metric is not None, float("-inf") if metric is None else metric, checkpoint.stat().st_mtime


def _bytes(folders: Sequence[Path]) -> int:
    return sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())


def drop_unfinished(flags: Mapping[str, Any]) -> None:
    """Remove a first checkpoint that a killed run did not finish: the host would go on from it, and fail.

    It takes the folder for a checkpoint (trainer/ppo_trainer.py, init_checkpoint_states), whatever is in it.
    """
    for folder in (Path(flags["ckpt.path"], name) for name in (ACTOR, "_critic")):
        if flags["ckpt.load_enable"] and folder.is_dir() and not (folder / LATEST).exists():
            shutil.rmtree(folder)


def save_model(wrapped: Callable[..., None], strategy: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A Hugging Face folder appears under its name once it is whole; one that was there stays until then.

    The host writes into the folder itself, weights first and the tokenizer last (utils/deepspeed/deepspeed.py).
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
    """A folder that is there may hold other things: by the host's defaults, the checkpoints are below ckpt.output_dir.

    Then config.json goes first and comes last: without it no reader takes the folder for a model.
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
    """A machine that stops must not leave the folder with files that are empty."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
