"""Samples prompts into a file, a row for each: in shards if asked, and from where a killed pass stopped."""

import fcntl
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath
from typing import IO, Generic, Protocol, TypeVar

from pydantic import BaseModel

from restrain_openrlhf.data.identity import Provenance
from restrain_openrlhf.data.jsonl import drop_cut_line, dump, each_line, each_row, is_parquet, parse
from restrain_openrlhf.data.outputs import output_file
from restrain_openrlhf.errors import DataError, RunError
from restrain_openrlhf.reference.offline_engine import Rollout
from restrain_openrlhf.reference.prompts import Prompt
from restrain_openrlhf.reference.row_table import OpenFile

PROMPTS_PER_CHUNK = 64
# Of rollouts a chunk holds many times what a GPU's engine works on at a time (vLLM: 256 to 1,024), because the engine
# runs empty at its end; and few enough to lose at a kill.
ROLLOUTS_PER_CHUNK = 4096


def prompts_per_chunk(n: int, has_gpus: bool) -> int:
    """How many prompts of n rollouts are sampled at once, and written."""
    return max(1, ROLLOUTS_PER_CHUNK // n) if has_gpus else PROMPTS_PER_CHUNK


class Engine(Protocol):
    """Anything that gives n rollouts per prompt; `RolloutEngine` does."""

    def rollouts(self, prompts: Sequence[Prompt]) -> list[list[Rollout]]: ...


class SampledRow(BaseModel, ABC):
    """What a file keeps of one prompt's rollouts. `key` is the prompt's identity in the file."""

    @classmethod
    @abstractmethod
    def key_of(cls, prompt: Prompt) -> str:
        """The key that the row of this prompt has."""

    @property
    @abstractmethod
    def key(self) -> str:
        """As `key_of` its prompt."""


Row = TypeVar("Row", bound=SampledRow)
Made = TypeVar("Made", bound=Provenance)
AnyPath = TypeVar("AnyPath", bound=PurePath)


@dataclass(frozen=True)
class Shard:
    """Part `index` of `count`: every count-th prompt, so that shards are alike in difficulty."""

    index: int
    count: int

    def of(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        return list(prompts[self.index :: self.count])

    def path(self, out: AnyPath) -> AnyPath:
        """This shard's file: `ref.shard-0-of-4.jsonl` for `ref.jsonl`, which itself is the file of a single shard.

        Whoever writes, joins or asks for parts, here or on a cluster, has their names from here.
        """
        return out if self.count == 1 else out.with_name(f"{out.stem}.shard-{self.index}-of-{self.count}{out.suffix}")

    @staticmethod
    def counts(out: Path) -> set[int]:
        """How many shards the parts of `out` that are there belong to."""
        named = re.compile(rf"{re.escape(out.stem)}\.shard-\d+-of-(\d+){re.escape(out.suffix)}")
        found = [named.fullmatch(path.name) for path in out.parent.glob("*.shard-*")] if out.parent.is_dir() else []
        return {int(match[1]) for match in found if match}


WHOLE = Shard(0, 1)


@dataclass(frozen=True)
class SamplingPass:
    """The prompts (of one shard), how they are sampled, `chunk` at once, and the file that gets a row for each.

    `make` gives the row, of the type `row`, of a prompt and its rollouts.
    """

    prompts: Sequence[Prompt]
    provenance: Provenance
    path: Path
    row: type[SampledRow]
    make: Callable[[Prompt, Sequence[Rollout]], SampledRow]
    chunk: int = PROMPTS_PER_CHUNK

    def run(self, engine: Callable[[], Engine], on_progress: Callable[[int], None] = lambda _count: None) -> None:
        """Write a row for each prompt that the file lacks; `engine` is called only if one is needed.

        `on_progress` gets numbers of prompts: those that were done, then each chunk's. Raises the provenance's error
        where the file holds another pass, RunError where another process is writing it.
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
        """Whether the file has a row for every prompt, so that no engine is needed. Raises as `run`."""
        if not self.path.exists():
            return False
        with _locked(self.path):
            return not any(self._chunks(self._done()))

    def _done(self) -> set[str]:
        """Keys of the rows that are there already. The provenance is written before the first of them."""
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
        return {row.key for row in each_row(self.path, self.row)}

    def _chunks(self, done: set[str]) -> Iterator[list[Prompt]]:
        """Always the same pieces, so that a pass that was stopped batches as one that was not."""
        for start in range(0, len(self.prompts), self.chunk):
            chunk = self.prompts[start : start + self.chunk]
            missing = [prompt for prompt in chunk if self.row.key_of(prompt) not in done]
            if missing:
                yield missing


def lines_file(path: Path) -> Path:
    """A file that lines can be appended to, as `output_file`. Raises DataError for one that is called Parquet, too."""
    if is_parquet(path):
        raise DataError(f"{path}: a reference is a file of JSON Lines, and not Parquet. Name a .jsonl file.")
    return output_file(path)


@contextmanager
def _locked(path: Path) -> Iterator[IO[str]]:
    with output_file(path).open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"{path}: another process is writing this file. Wait for it, or give this process its own --shard."
            ) from None
        yield file


def shared_provenance(parts: Sequence[Path], provenance: type[Made]) -> Made:
    """That of all parts. Raises the provenance's error where two were sampled in different ways."""
    made = provenance.of(parts[0])
    for part in parts:
        difference = provenance.of(part).difference(made)
        if difference:
            raise made.error(
                f"{part} and {parts[0]} are not parts of the same pass ({difference}). Leave out one of them."
            )
    return made


def each_of_parts(parts: Sequence[Path], row: type[Row]) -> Iterator[Row]:
    """The rows of all parts, one at a time. Raises DataError where a prompt is in two."""
    keys: set[str] = set()
    for part in parts:
        for each in each_row(part, row):
            if each.key in keys:
                raise _twice(part, each.key)
            keys.add(each.key)
            yield each


class RowsByKey(Generic[Row]):
    """The rows of all parts, read when they are asked for: where each one begins is all that is in memory."""

    def __init__(self, parts: Sequence[Path], row: type[Row]) -> None:
        """Reads and checks all rows. Raises DataError as `each_of_parts`."""
        self._row, self._files = row, [OpenFile(part) for part in parts]
        self._places: dict[str, int] = {}
        for number, part in enumerate(parts):
            for line in each_line(part):
                key = parse(part, line, row).key
                if key in self._places:
                    raise _twice(part, key)
                self._places[key] = line.offset * len(parts) + number

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def __getitem__(self, key: str) -> Row:
        offset, number = divmod(self._places[key], len(self._files))
        return self._row.model_validate(json.loads(self._files[number].line(offset)))


def _twice(part: Path, key: str) -> DataError:
    return DataError(f"{part}: the row {key!r} is in another part too. Leave out one of the two parts.")
