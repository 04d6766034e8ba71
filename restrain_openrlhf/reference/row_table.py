"""Where each row of a reference artifact is, in a table that is made once and shared by all processes of a machine."""

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

# The version of a table's content and of the checks made with it. Another number makes all tables again.
FORMAT = 2
HASH_DIGITS = 16
# Bytes of a row that are read at first.
LINE_BYTES = 1 << 13


@dataclass(frozen=True, eq=False)
class RowTable:
    """Six columns of 64-bit numbers, (6, rows of the artifact).

    Column 0 has the prompts' keys, ascending. In the same order, column 1 has the byte at which the row begins in the
    file, and column 2 the majority's share as a float. Column 3 has the problems' keys, ascending, and column 4 where
    their rows begin. Column 5 has the shares of rollouts without an answer, in the file's order. A key is the first 64
    bits of a SHA-256; among 10^6 of them two are equal with probability 3e-8, and readers of a row compare the whole
    hash.
    """

    columns: NDArray[np.uint64]

    def __len__(self) -> int:
        return int(self.columns.shape[1])

    def of_prompt(self, digest: str) -> list[int]:
        """The bytes at which rows of a prompt with this hash may begin; mostly there is one, or none."""
        return self._offsets(0, digest)

    def of_problem(self, digest: str) -> list[int]:
        """The bytes at which rows of a problem with this hash may begin; the last row of the file comes first."""
        return self._offsets(3, digest)[::-1]

    def _offsets(self, column: int, digest: str) -> list[int]:
        keys, wanted = self.columns[column], np.uint64(key_of(digest))
        first, last = np.searchsorted(keys, wanted, "left"), np.searchsorted(keys, wanted, "right")
        return [int(offset) for offset in self.columns[column + 1][first:last]]

    @property
    def missing_share(self) -> float:
        """The share of all rollouts that have no answer. Every row has the same number of them."""
        return float(self.columns[5].view(np.float64).mean()) if len(self) else 0.0

    def shares(self, digests: Iterable[str]) -> NDArray[np.float64]:
        """The majority's share for each hash of a prompt; NaN for a prompt without a row."""
        wanted = np.fromiter(map(key_of, digests), np.uint64)
        if not len(self):
            return np.full(len(wanted), np.nan)
        places = np.minimum(np.searchsorted(self.columns[0], wanted), len(self) - 1)
        return np.where(self.columns[0][places] == wanted, self.columns[2].view(np.float64)[places], np.nan)


@dataclass(frozen=True, eq=False)
class TableColumns:
    """The data of a table, row by row in the file's order; `numbers` are line numbers."""

    prompts: "array[int]" = field(default_factory=lambda: array("Q"))
    problems: "array[int]" = field(default_factory=lambda: array("Q"))
    offsets: "array[int]" = field(default_factory=lambda: array("Q"))
    numbers: "array[int]" = field(default_factory=lambda: array("Q"))
    shares: "array[float]" = field(default_factory=lambda: array("d"))
    missing: "array[float]" = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.prompts)

    def add(self, prompt_hash: str, problem_hash: str, line: Line, share: float, missing: float) -> None:
        self.prompts.append(key_of(prompt_hash))
        self.problems.append(key_of(problem_hash))
        self.offsets.append(line.offset)
        self.numbers.append(line.number)
        self.shares.append(share)
        self.missing.append(missing)

    def alike(self) -> Iterator[tuple[int, int]]:
        """Pairs of rows whose prompts have one key: the first row, and each later one, in the file's order."""
        keys = np.array(self.prompts)
        order = np.argsort(keys, kind="stable")
        again = np.sort(order[1:][keys[order[1:]] == keys[order[:-1]]])
        return ((int(np.argmax(keys == keys[place])), int(place)) for place in again)

    def table(self) -> RowTable:
        prompts, problems, offsets = map(np.array, (self.prompts, self.problems, self.offsets))
        by_prompt, by_problem = np.argsort(prompts, kind="stable"), np.argsort(problems, kind="stable")
        share, missing = (np.array(each).view(np.uint64) for each in (self.shares, self.missing))
        of_prompts = prompts[by_prompt], offsets[by_prompt], share[by_prompt]
        return RowTable(np.stack((*of_prompts, problems[by_problem], offsets[by_problem], missing)))


def key_of(digest: str) -> int:
    """The first 64 bits of a hash in hexadecimal."""
    return int(digest[:HASH_DIGITS], 16)


class OpenFile:
    """A file that can be read at several places at once.

    It stays the file that was opened if another takes its name.
    """

    def __init__(self, path: Path) -> None:
        """Open the file. Raises OSError if that fails."""
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)

    def line(self, offset: int) -> bytes:
        """The line that begins at this byte."""
        read = b""
        # Double what has been read, so that a line of many MB takes few reads.
        while part := os.pread(self._descriptor, max(LINE_BYTES, len(read)), offset + len(read)):
            read += part
            if b"\n" in part:
                break
        return read.splitlines()[0] if read else b""


def shared_table(artifact: Path, made_with: str, make: Callable[[], RowTable]) -> RowTable:
    """The table of an artifact, mapped from the cache. One process makes it, and others wait for it.

    The artifact's content and `made_with` identify a table in the cache. The table of a small artifact is not cached,
    and where the cache cannot be written, each process makes its own. Raises what `make` raises.
    """
    if artifact.stat().st_size < CACHED_FROM:
        return make()
    known = "\n".join([str(FORMAT), made_with, file_digest(artifact)])
    entry = cache_folder() / "references" / f"{hashlib.sha256(known.encode()).hexdigest()}.npy"
    found = _cached(entry)
    return _make_once(entry, make) if found is None else found


def _make_once(entry: Path, make: Callable[[], RowTable]) -> RowTable:
    with _locked(entry.with_suffix(".lock")):
        found = _cached(entry)
        if found is not None:
            return found
        table = make()
        with suppress(OSError), replacing(entry, "wb") as file:
            np.save(file, table.columns)
    found = _cached(entry)
    return table if found is None else found


def _cached(entry: Path) -> RowTable | None:
    with suppress(OSError, ValueError):
        return RowTable(np.asarray(np.load(entry, mmap_mode="r")))
    return None


@contextmanager
def _locked(lock: Path) -> Iterator[None]:
    """Within the block, one process of this machine at a time; all at once where the cache cannot be written."""
    with ExitStack() as held:
        with suppress(OSError):
            lock.parent.mkdir(parents=True, exist_ok=True)
            fcntl.flock(held.enter_context(lock.open("a")), fcntl.LOCK_EX)
        yield
