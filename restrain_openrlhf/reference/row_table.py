"""Where each row of a reference artifact is: a table that is made once, and that all processes of a machine share."""

import fcntl
import hashlib
import os
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from restrain_openrlhf.data.identity import CACHED_FROM, cache_folder, file_digest
from restrain_openrlhf.data.jsonl import Line
from restrain_openrlhf.data.outputs import replacing

# Of what a table holds, and of what is checked as it is made: another number makes tables again.
FORMAT = 1
HASH_DIGITS = 16
# Of a row that is read at first.
LINE_BYTES = 1 << 13


@dataclass(frozen=True, eq=False)
class RowTable:
    """Five columns of 64 bits, a place for each row of the artifact.

    0: the prompts' keys, ascending; 1 and 2: in their order, where the row begins in the file, in bytes, and its
    majority's share as a float; 3: the problems' keys, ascending; 4: where their rows begin. A key is the first 64 bits
    of a SHA-256: 10^6 of them are all different but for a chance of 3e-8, and whoever reads a row compares all of it.
    """

    columns: NDArray[np.uint64]

    def __len__(self) -> int:
        return int(self.columns.shape[1])

    def of_prompt(self, digest: str) -> list[int]:
        """Where rows may begin whose prompt has this hash: mostly one, or none."""
        return self._found(0, digest)

    def of_problem(self, digest: str) -> list[int]:
        """As `of_prompt`, of a problem's hash; the last row of the file first."""
        return self._found(3, digest)[::-1]

    def _found(self, column: int, digest: str) -> list[int]:
        keys, wanted = self.columns[column], np.uint64(key_of(digest))
        first, last = np.searchsorted(keys, wanted, "left"), np.searchsorted(keys, wanted, "right")
        return [int(offset) for offset in self.columns[column + 1][first:last]]

    def shares(self, digests: Iterable[str]) -> NDArray[np.float64]:
        """The majority's share of each prompt by its hash; NaN for one without a row."""
        wanted = np.fromiter(map(key_of, digests), np.uint64)
        if not len(self):
            return np.full(len(wanted), np.nan)
        places = np.minimum(np.searchsorted(self.columns[0], wanted), len(self) - 1)
        return np.where(self.columns[0][places] == wanted, self.columns[2].view(np.float64)[places], np.nan)


@dataclass(frozen=True, eq=False)
class TableColumns:
    """What a table is made of, row by row in the file's order; `numbers` are the lines' own."""

    prompts: "array[int]" = field(default_factory=lambda: array("Q"))
    problems: "array[int]" = field(default_factory=lambda: array("Q"))
    offsets: "array[int]" = field(default_factory=lambda: array("Q"))
    numbers: "array[int]" = field(default_factory=lambda: array("Q"))
    shares: "array[float]" = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.prompts)

    def add(self, prompt_hash: str, problem_hash: str, line: Line, share: float) -> None:
        """One row more."""
        self.prompts.append(key_of(prompt_hash))
        self.problems.append(key_of(problem_hash))
        self.offsets.append(line.offset)
        self.numbers.append(line.number)
        self.shares.append(share)

    def alike(self) -> Iterator[tuple[int, int]]:
        """Places of two rows whose prompts have one key: the first, and each that has it again, in the file's order."""
        keys = np.array(self.prompts)
        order = np.argsort(keys, kind="stable")
        again = np.sort(order[1:][keys[order[1:]] == keys[order[:-1]]])
        return ((int(np.argmax(keys == keys[place])), int(place)) for place in again)

    def table(self) -> RowTable:
        """Of all rows."""
        prompts, problems, offsets = map(np.array, (self.prompts, self.problems, self.offsets))
        by_prompt, by_problem = np.argsort(prompts, kind="stable"), np.argsort(problems, kind="stable")
        share = np.array(self.shares).view(np.uint64)
        columns = (prompts[by_prompt], offsets[by_prompt], share[by_prompt], problems[by_problem], offsets[by_problem])
        return RowTable(np.stack(columns))


def key_of(digest: str) -> int:
    """The first 64 bits of a hash in hex."""
    return int(digest[:HASH_DIGITS], 16)


class OpenFile:
    """A file that is read in several places at once, and stays as it was opened where another takes its place."""

    def __init__(self, path: Path) -> None:
        """Raises OSError where it cannot be opened."""
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)

    def line(self, offset: int) -> bytes:
        """The line that begins at this byte."""
        read = b""
        # As much again as there is, so that a line of many MB is read in few pieces.
        while part := os.pread(self._descriptor, max(LINE_BYTES, len(read)), offset + len(read)):
            read += part
            if b"\n" in part:
                break
        return read.splitlines()[0] if read else b""


def shared_table(artifact: Path, made_with: str, make: Callable[[], RowTable]) -> RowTable:
    """The artifact's table: mapped from the cache, where one process makes it while others wait for it.

    A table is kept under the artifact's content and `made_with`. A small artifact's is not kept, and without a cache
    that can be written to each process has its own. Raises what `make` raises.
    """
    if artifact.stat().st_size < CACHED_FROM:
        return make()
    known = "\n".join([str(FORMAT), made_with, file_digest(artifact)])
    entry = cache_folder() / "references" / f"{hashlib.sha256(known.encode()).hexdigest()}.npy"
    found = _kept(entry)
    return _made(entry, make) if found is None else found


def _made(entry: Path, make: Callable[[], RowTable]) -> RowTable:
    with _alone(entry.with_suffix(".lock")):
        found = _kept(entry)
        if found is not None:
            return found
        table = make()
        with suppress(OSError), replacing(entry, "wb") as file:
            np.save(file, table.columns)
    found = _kept(entry)
    return table if found is None else found


def _kept(entry: Path) -> RowTable | None:
    with suppress(OSError, ValueError):
        return RowTable(np.asarray(np.load(entry, mmap_mode="r")))
    return None


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One process of this machine at a time; without a cache, all at the same time."""
    with ExitStack() as held:
        with suppress(OSError):
            lock.parent.mkdir(parents=True, exist_ok=True)
            fcntl.flock(held.enter_context(lock.open("a")), fcntl.LOCK_EX)
        yield
