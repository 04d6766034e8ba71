"""A sampling pass on all visible GPUs: each process has an engine and samples a shard, and all share one progress."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from restrain_openrlhf.data.jsonl import FollowedFile
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.machine.devices import visible_gpus
from restrain_openrlhf.machine.processes import Command, run_together
from restrain_openrlhf.reference.sampling_pass import WHOLE, Shard

# Is called with the number of rows that were written since the last call.
OnRows = Callable[[int], None]


@dataclass(frozen=True)
class ShardedPass:
    """A pass by processes of `restrain WORDS --shard I/N`; each of them writes its part of every file in `files`.

    `size` is the number of GPUs of an engine; by default, `words` are this process's own command line.
    """

    files: Sequence[Path]
    size: int = 1
    words: Sequence[str] = field(default_factory=lambda: sys.argv[1:])

    def shards(self) -> list[Shard]:
        """The shards of an earlier start if there are any, else one for each engine that fits on the GPUs.

        A pass that was begun without shards continues without them. Raises RunError if there are parts of two passes
        with different numbers of shards.
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
        """Sample `part`: a single shard by calling `here`, several in processes.

        Returns the shards that were sampled.
        """
        shards = self.shards() if part.count == 1 else [part]
        if len(shards) > 1:
            self.run(shards, on_progress)
        else:
            here(on_progress)
        return shards

    def run(self, shards: Sequence[Shard], on_progress: OnRows = lambda _rows: None) -> None:
        """Run all shards in processes; each engine takes the next one when it is free.

        Raises RunError with the log's last lines if one fails; all rows are kept, and the next start continues from
        them.
        """
        for path in self.files:
            path.parent.mkdir(parents=True, exist_ok=True)
        written = [FollowedFile(shard.path(path)) for shard in shards for path in self.files]
        engines = engine_gpus(visible_gpus(), self.size)
        slots = [{"CUDA_VISIBLE_DEVICES": ",".join(gpus)} for gpus in engines] or [{}]
        # The log of a shard's process is beside the shard's first file.
        logs = [each.path(self.files[0]).with_suffix(".log") for each in shards]
        words = [[*self.words, "--shard", str(each)] for each in shards]
        commands = list(map(Command, words, logs))
        try:
            run_together(commands, slots, lambda: on_progress(new_rows(written)))
        finally:
            on_progress(new_rows(written))


def engine_gpus(gpus: Sequence[str], size: int) -> list[Sequence[str]]:
    """The GPUs of each engine, `size` per engine. GPUs that are left over stay idle."""
    return [gpus[start : start + size] for start in range(0, len(gpus) - size + 1, size)]


def new_rows(files: Sequence[FollowedFile]) -> int:
    """How many rows were written to the files since the last call."""
    return sum(1 for file in files for _ in file.new_lines())
