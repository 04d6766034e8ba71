"""A sampling pass on all visible GPUs: one engine per process, each with its shard, and one progress for all."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from restrain_openrlhf.data.jsonl import FollowedFile
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.machine.devices import visible_gpus
from restrain_openrlhf.machine.processes import Command, run_together
from restrain_openrlhf.reference.sampling_pass import WHOLE, Shard

# Gets numbers of rows.
OnRows = Callable[[int], None]


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
                f"{self.files[0].parent}: has parts of two passes, of {' and of '.join(map(str, sorted(counts)))} "
                "shards. Finish one pass with --shard, or remove the other's files."
            )
        count = next(iter(counts), len(engine_gpus(visible_gpus(), self.size))) or 1
        return [Shard(index, count) for index in range(count)]

    def draw(self, part: Shard, here: Callable[[OnRows], None], on_progress: OnRows) -> list[Shard]:
        """One shard, or a pass that fits on one engine, `here`; a larger one in processes. Returns what was drawn."""
        shards = self.shards() if part.count == 1 else [part]
        if len(shards) > 1:
            self.run(shards, on_progress)
        else:
            here(on_progress)
        return shards

    def run(self, shards: Sequence[Shard], on_progress: OnRows = lambda _rows: None) -> None:
        """Run them all, each engine taking the next one when it is free. `on_progress` gets numbers of rows.

        Raises RunError with the log's last lines if one fails; what all have written is kept, and gone on from.
        """
        for path in self.files:
            path.parent.mkdir(parents=True, exist_ok=True)
        written = [FollowedFile(shard.path(path)) for shard in shards for path in self.files]
        engines = engine_gpus(visible_gpus(), self.size)
        slots = [{"CUDA_VISIBLE_DEVICES": ",".join(gpus)} for gpus in engines] or [{}]
        # What a shard's process prints lies beside its first file.
        logs = [each.path(self.files[0]).with_suffix(".log") for each in shards]
        words = [[*self.words, "--shard", f"{each.index}/{each.count}"] for each in shards]
        commands = list(map(Command, words, logs))
        try:
            run_together(commands, slots, lambda: on_progress(new_rows(written)))
        finally:
            on_progress(new_rows(written))


def engine_gpus(gpus: Sequence[str], size: int) -> list[Sequence[str]]:
    """The GPUs of each engine, `size` per engine; the remainder stays idle."""
    return [gpus[start : start + size] for start in range(0, len(gpus) - size + 1, size)]


def new_rows(files: Sequence[FollowedFile]) -> int:
    """How many rows were written to the files since the last call."""
    return sum(1 for file in files for _ in file.new_lines())
