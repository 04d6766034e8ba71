"""A sampling pass on all visible GPUs: one engine per process, each with its shard, and one progress for all."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from restrain_openrlhf.errors import RunError
from restrain_openrlhf.machine.devices import visible_gpus
from restrain_openrlhf.machine.processes import Command, run_together
from restrain_openrlhf.reference.sampling_pass import WHOLE, Shard


@dataclass(frozen=True)
class ShardedPass:
    """`restrain WORDS...`, which takes `--shard`; `files` are those that a whole pass writes, a shard its part of each.

    `size` is how many GPUs an engine has; `words` are those of this process's own command line.
    """

    files: Sequence[Path]
    size: int = 1
    words: Sequence[str] = field(default_factory=lambda: sys.argv[1:])

    def shards(self) -> list[Shard]:
        """Those of an earlier start where there are any, else one for each engine that fits on the GPUs.

        A pass that has begun in one piece goes on so. Raises RunError where parts of two divisions are there.
        """
        if any(path.exists() and path.stat().st_size for path in self.files):
            return [WHOLE]
        counts = {count for path in self.files for count in Shard.counts(path)}
        if len(counts) > 1:
            raise RunError(
                f"{self.files[0].parent}: there are parts of {' and of '.join(map(str, sorted(counts)))} shards. "
                "Finish one of the two by --shard, or remove the other's files."
            )
        count = next(iter(counts), len(engine_gpus(visible_gpus(), self.size))) or 1
        return [Shard(index, count) for index in range(count)]

    def run(self, shards: Sequence[Shard], on_progress: Callable[[int], None] = lambda _rows: None) -> None:
        """Run them all, each engine taking the next one when it is free. `on_progress` gets numbers of rows.

        Raises RunError with the log's last lines if one fails; what all have written is kept, and gone on from.
        """
        for path in self.files:
            path.parent.mkdir(parents=True, exist_ok=True)
        rows = RowCounter([shard.path(path) for shard in shards for path in self.files])
        engines = engine_gpus(visible_gpus(), self.size)
        slots = [{"CUDA_VISIBLE_DEVICES": ",".join(gpus)} for gpus in engines] or [{}]
        # What a shard's process prints lies beside its first file.
        logs = [each.path(self.files[0]).with_suffix(".log") for each in shards]
        words = [[*self.words, "--shard", f"{each.index}/{each.count}"] for each in shards]
        commands = list(map(Command, words, logs))
        try:
            run_together(commands, slots, lambda: on_progress(rows.new()))
        finally:
            on_progress(rows.new())


def engine_gpus(gpus: Sequence[str], size: int) -> list[Sequence[str]]:
    """The GPUs of each engine, `size` per engine; the remainder stays idle."""
    return [gpus[start : start + size] for start in range(0, len(gpus) - size + 1, size)]


@dataclass
class RowCounter:
    """Counts whole lines that others append to files, which need not exist yet."""

    files: Sequence[Path]
    _read: dict[Path, int] = field(default_factory=dict)

    def new(self) -> int:
        """Lines since the last call."""
        return sum(self._new(path) for path in self.files if path.exists())

    def _new(self, path: Path) -> int:
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            added = file.read()
        whole = added.rfind(b"\n") + 1
        self._read[path] = self._read.get(path, 0) + whole
        return added[:whole].count(b"\n")
