"""Samples prompts into a file with a row for each: in shards, on all GPUs, and from where a killed pass stopped."""

import fcntl
import json
import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePath
from typing import IO, Generic, Protocol, TypeVar

from pydantic import BaseModel

from restrain_openrlhf.data.identity import Provenance
from restrain_openrlhf.data.jsonl import FollowedFile, drop_cut_line, dump, each_line, each_row, parse
from restrain_openrlhf.data.outputs import appended, output_file
from restrain_openrlhf.errors import ConfigError, DataError, RunError
from restrain_openrlhf.machine.devices import visible_gpus
from restrain_openrlhf.machine.processes import Command, run_together
from restrain_openrlhf.reference.offline_engine import Rollout
from restrain_openrlhf.reference.prompts import Prompt

# Is called with the number of rows that were written since the last call.
OnRows = Callable[[int], None]
# A CPU's engine draws so many rollouts in minutes, after which progress is shown and can no longer be lost.
PROMPTS_PER_CHUNK, ROLLOUTS_ON_A_CPU = 64, 1024
# A chunk has many times the rollouts that a GPU's engine works on at a time (vLLM: 256 to 1,024), because the engine
# runs empty at the end of a chunk; but not so many that losing them to a kill would matter.
ROLLOUTS_PER_CHUNK = 4096
# Bytes of a row that are read at first.
LINE_BYTES = 1 << 13


def prompts_per_chunk(n: int, has_gpus: bool) -> int:
    return max(1, ROLLOUTS_PER_CHUNK // n if has_gpus else min(PROMPTS_PER_CHUNK, ROLLOUTS_ON_A_CPU // n))


class Engine(Protocol):
    """Anything that draws n rollouts per prompt, such as `RolloutEngine`."""

    def rollouts(self, prompts: Sequence[Prompt]) -> list[list[Rollout]]: ...


class SampledRow(BaseModel, ABC):
    """What a file keeps of one prompt's rollouts."""

    @classmethod
    @abstractmethod
    def key_of(cls, prompt: Prompt) -> str:
        """The key of this prompt's row, which identifies the prompt in the file."""

    @property
    @abstractmethod
    def key(self) -> str:
        """The key of this row, equal to `key_of` its prompt."""

    def difference(self, prompt: Prompt) -> str | None:
        """What of the prompt that is kept here is other now, with both values; None if nothing is."""
        return None


Row = TypeVar("Row", bound=SampledRow)
Made = TypeVar("Made", bound=Provenance)
AnyPath = TypeVar("AnyPath", bound=PurePath)


@dataclass(frozen=True)
class Shard:
    """Part `index` of `count`: every count-th prompt, so that all shards are about equally difficult."""

    index: int
    count: int

    @classmethod
    def named(cls, text: str) -> "Shard":
        """The shard that `0/4` names. Raises ConfigError for anything else than I/K."""
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if not match or not int(match[1]) < int(match[2]):
            raise ConfigError(f"--shard {text!r}: give I/K with 0 <= I < K, for example 0/4.")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def of(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        return list(prompts[self.index :: self.count])

    def path(self, out: AnyPath) -> AnyPath:
        """This shard's file: `ref.shard-0-of-4.jsonl` for `ref.jsonl`, which itself is the file of a single shard.

        All code that writes, joins or looks for parts, here or on a cluster, gets their names from here.
        """
        return out if self.count == 1 else out.with_name(f"{out.stem}.shard-{self.index}-of-{self.count}{out.suffix}")

    @staticmethod
    def counts(out: Path) -> set[int]:
        """The numbers of shards that the existing parts of `out` were made with."""
        named = re.compile(rf"{re.escape(out.stem)}\.shard-\d+-of-(\d+){re.escape(out.suffix)}")
        found = [named.fullmatch(path.name) for path in out.parent.glob("*.shard-*")] if out.parent.is_dir() else []
        return {int(match[1]) for match in found if match}


WHOLE = Shard(0, 1)


@dataclass(frozen=True)
class SamplingPass:
    """The prompts of one shard, and the file that gets a row for each; `chunk` prompts are sampled at once.

    `make` turns a prompt and its rollouts into a row of the type `row`.
    """

    prompts: Sequence[Prompt]
    provenance: Provenance
    path: Path
    row: type[SampledRow]
    make: Callable[[Prompt, Sequence[Rollout]], SampledRow]
    chunk: int = PROMPTS_PER_CHUNK

    def run(self, engine: Callable[[], Engine], on_progress: OnRows = lambda _count: None) -> None:
        """Write a row for each prompt that the file lacks. `engine` is only called if there is such a prompt.

        `on_progress` gets the number of prompts that were done already, then that of each chunk. Raises the
        provenance's error where the file holds another pass, RunError where another process is writing it.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.path) as file:
            done, start = self._done(), cache(engine)
            on_progress(len(done))
            for chunk in self._chunks(done):
                groups = start().rollouts(chunk)
                rows = [self.make(prompt, group) for prompt, group in zip(chunk, groups, strict=True)]
                file.write("".join(dump(row.model_dump(mode="json")) for row in rows))
                file.flush()
                on_progress(len(chunk))

    def is_complete(self) -> bool:
        """Whether the file has a row for every prompt, so that no engine is needed. Raises what `run` raises."""
        if not self.path.exists():
            return False
        with _locked(self.path):
            return not any(self._chunks(self._done()))

    def _done(self) -> set[str]:
        """The keys of existing rows, checked against their prompts. The provenance is written before the first row."""
        if not self.path.stat().st_size:
            self.provenance.write(self.path)
            return set()
        difference = type(self.provenance).of(self.path).difference(self.provenance)
        if difference:
            raise self.provenance.error(
                f"{self.path} holds a different pass ({difference}). Choose another --out, or remove the file to "
                "start again."
            )
        drop_cut_line(self.path)
        prompts, done = {self.row.key_of(prompt): prompt for prompt in self.prompts}, set()
        for row in each_row(self.path, self.row):
            prompt = prompts.get(row.key)
            if prompt is not None and (changed := row.difference(prompt)):
                raise self.provenance.error(
                    f"{self.path} has rollouts of another row of {prompt.where} {prompt.text[:80]!r}: {changed}. "
                    "Restore it, choose another --out, or remove the file to start again."
                )
            done.add(row.key)
        return done

    def _chunks(self, done: set[str]) -> Iterator[list[Prompt]]:
        """The missing prompts, chunk by chunk. A resumed pass has the same chunks as one that was never stopped."""
        for start in range(0, len(self.prompts), self.chunk):
            chunk = self.prompts[start : start + self.chunk]
            missing = [prompt for prompt in chunk if self.row.key_of(prompt) not in done]
            if missing:
                yield missing


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
        commands = [Command([*self.words, "--shard", str(each)], log) for each, log in zip(shards, logs, strict=True)]
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


@contextmanager
def _locked(path: Path) -> Iterator[IO[str]]:
    with appended(output_file(path)) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"{path}: another process is writing this file. Wait for it, or give this process its own --shard."
            ) from None
        yield file


def shared_provenance(parts: Sequence[Path], provenance: type[Made]) -> Made:
    """The provenance of all parts. Raises the provenance's error where two parts were sampled in different ways."""
    made = provenance.of(parts[0])
    for part in parts:
        difference = provenance.of(part).difference(made)
        if difference:
            raise made.error(
                f"{part} and {parts[0]} are not parts of the same pass ({difference}). Leave out one of them."
            )
    return made


class RowsByKey(Generic[Row]):
    """The rows of all parts by their keys, in the order of the parts.

    Only the places of rows are in memory; a row is read when it is asked for. The files stay open, so that others that
    take their names are not read.
    """

    def __init__(
        self, parts: Sequence[Path], row: type[Row], check: Callable[[str, Row], None] = lambda _where, _row: None
    ) -> None:
        """Read and check all rows; `check` gets each with its place.

        Raises DataError if a row is damaged, or a prompt has two rows.
        """
        self._row, self._parts = row, parts
        self._places: dict[str, int] = {}
        for number, part in enumerate(parts):
            for line in each_line(part):
                read, where = parse(part, line, row), f"{part}, line {line.number}"
                check(where, read)
                if read.key in self._places:
                    raise DataError(
                        f"{where}: the row {read.key!r} is there already, in this part or another. Remove one of the "
                        "two rows, or leave out one of the parts."
                    )
                self._places[read.key] = line.offset * len(parts) + number
        self._files = [path.open("rb") for path in parts]

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def get(self, key: str) -> Row | None:
        return self[key] if key in self._places else None

    def __iter__(self) -> Iterator[Row]:
        return (self[key] for key in self._places)

    def __getitem__(self, key: str) -> Row:
        """The row of this key. Raises DataError if its file was changed since."""
        offset, number = divmod(self._places[key], len(self._parts))
        with suppress(ValueError):
            row = self._row.model_validate(json.loads(_line(self._files[number].fileno(), offset)))
            if row.key == key:
                return row
        raise DataError(
            f"{self._parts[number]}: the row at byte {offset} has disappeared: the file was changed while it was in "
            "use. Restore the file, and start again."
        )


def _line(descriptor: int, offset: int) -> bytes:
    """The line that begins at this byte. Safe to use from several threads."""
    read = b""
    # Double what has been read, so that a line of many MB takes few reads.
    while b"\n" not in read and (part := os.pread(descriptor, max(LINE_BYTES, len(read)), offset + len(read))):
        read += part
    return read.splitlines()[0] if read else b""
