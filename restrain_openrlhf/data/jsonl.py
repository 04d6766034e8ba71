"""JSON Lines of typed rows: strict reading with line numbers, atomic writing, appending, and following.

Tables that users bring, in these and other formats, are read by data/tables.py.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from restrain_openrlhf.data.outputs import whole_file
from restrain_openrlhf.errors import DataError, no_such_file

Row = TypeVar("Row", bound=BaseModel)


class AnyRow(BaseModel, frozen=True, extra="allow"):
    """A row with any keys."""


class Identified(BaseModel, frozen=True, extra="ignore"):
    """A row with an id, by which results name it."""

    id: str | int


IdentifiedRow = TypeVar("IdentifiedRow", bound=Identified)
# Bytes that are read at a time, from a file's end, to find its last line.
TAIL_BYTES = 1 << 16
# Rows of a Parquet file that are in memory at a time.
BATCH_ROWS = 1024
SAVE_AS_UTF8 = 'Save it as UTF-8, which Excel calls "CSV UTF-8".'


def read_rows(path: Path, row_type: type[Row]) -> list[Row]:
    """Every row of `path` as `row_type`.

    Raises DataError naming the file, the line and the field for anything that is not a row.
    """
    return list(each_row(path, row_type))


def each_row(path: Path, row_type: type[Row]) -> Iterator[Row]:
    """The rows of `read_rows` one at a time, for files that are too large for memory."""
    return (parse(path, line, row_type) for line in each_line(path))


def identified(path: Path, rows: Iterable[tuple[str, IdentifiedRow]]) -> Iterator[tuple[str, IdentifiedRow]]:
    """The rows of a file with their places, no two of which have one id.

    Ids are compared as text, because results name rows by text. Raises DataError naming the places.
    """
    first: dict[str, str] = {}
    for place, row in rows:
        if first.setdefault(str(row.id), place) != place:
            raise DataError(
                f"{path}: {first[str(row.id)]} and {place} have the same id {str(row.id)!r}. Give each its own."
            )
        yield place, row


@dataclass(frozen=True, slots=True)
class Line:
    """A line that is not blank: its number, counted from 1, the bytes before it in the file, and its text."""

    number: int
    offset: int
    text: str


@contextmanager
def utf8_file(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a text file. Raises DataError if there is no such file."""
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise DataError(no_such_file(path)) from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder, but a file is needed.") from None


def each_line(path: Path) -> Iterator[Line]:
    """The lines of a text file, one at a time, with any line ends. Raises DataError if the file cannot be read."""
    with utf8_file(path) as file:
        offset, parts = 0, (part for lines in file for part in lines.splitlines(keepends=True))
        for number, raw in enumerate(parts, start=1):
            try:
                # Some editors write a byte order mark at the beginning of a file.
                text = raw.rstrip(b"\r\n").decode("utf-8" if offset else "utf-8-sig")
            except UnicodeDecodeError as error:
                at = offset + error.start
                raise DataError(f"{path}: is not UTF-8 text ({error.reason} at byte {at}). {SAVE_AS_UTF8}") from None
            if text.strip():
                yield Line(number, offset, text)
            offset += len(raw)


def parse(path: Path, line: Line, row_type: type[Row]) -> Row:
    """The row of a line. Raises DataError naming file, line and field."""
    place = f"line {line.number}"
    return validated(path, place, json_value(f"{path}, {place}", line.text), row_type)


def json_value(where: str, text: str) -> Any:
    """The value of a JSON text. Raises DataError if it is none, or has half of a character (a lone surrogate)."""
    try:
        return from_json(text)
    except ValueError as error:
        raise DataError(f"{where}: not valid JSON ({error}). Fix it, or remove it.") from None


def validated(path: Path, place: str, row: object, row_type: type[Row]) -> Row:
    """The row at that place as `row_type`. Raises DataError naming file, place and field."""
    try:
        return row_type.model_validate(as_object(path, place, row))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "the row"
        there = f"; its columns are {', '.join(row)}" if first["type"] == "missing" and isinstance(row, dict) else ""
        raise DataError(f"{path}, {place}: {key}: {first['msg']}{there}. Fix or remove the row.") from None


def as_object(path: Path, place: str, row: object) -> dict[str, Any]:
    """The row at that place, which must be a JSON object. Raises DataError if it is none."""
    if not isinstance(row, dict):
        raise DataError(
            f"{path}, {place}: is no object, but {type(row).__name__}. Every row must be one object with keys, such as "
            '{"problem": "1 + 1"}.'
        )
    return row


def write_rows(path: Path, rows: Iterable[BaseModel]) -> None:
    """Write all rows or nothing. No reader sees half a file, and an old file survives a failure.

    Raises DataError if `path` cannot be written (data/outputs.py).
    """
    with whole_file(path) as file:
        file.writelines(dump(row.model_dump(mode="json")) for row in rows)


def arrow() -> Any:
    """pyarrow with its modules for Parquet and for searches. Raises DataError if it is not installed."""
    try:
        import pyarrow.compute  # noqa: PLC0415 - as Parquet's part
        import pyarrow.parquet  # noqa: PLC0415 - optional, and costs a moment
    except ImportError:
        raise DataError(
            "Parquet files (kept rollouts too) need pyarrow, which is not installed. Install it with `pip install "
            "restrain-openrlhf[data]`."
        ) from None
    return pyarrow


def drop_cut_line(path: Path) -> None:
    """Cut off a last line without an end, which a kill while appending has left. Its row is then made again."""
    last = last_line(path)
    if last and not last.endswith(b"\n"):
        os.truncate(path, path.stat().st_size - len(last))


def last_line(path: Path) -> bytes:
    """The last line, whole or not, without reading the whole file; empty if the file is empty."""
    with path.open("rb") as file:
        start, tail = file.seek(0, os.SEEK_END), b""
        while start and b"\n" not in tail[:-1]:
            start, size = max(0, start - TAIL_BYTES), min(start, TAIL_BYTES)
            file.seek(start)
            tail = file.read(size) + tail
    return tail[tail.rfind(b"\n", 0, max(0, len(tail) - 1)) + 1 :]


@dataclass
class FollowedFile:
    """A file to which others append lines. Each line is read once, when it is whole.

    If the file is replaced, all lines are read again.

    The file need not exist yet. `_file` is the inode and the device of the file that was read, and `_read` the number
    of bytes read.
    """

    path: Path
    _file: tuple[int, int] = (0, 0)
    _read: int = 0

    def new_lines(self) -> Iterator[str]:
        """The lines that were added since the last call. A line that is not whole yet is left for a later call."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            found = os.fstat(file.fileno())
            if (found.st_ino, found.st_dev) != self._file or found.st_size < self._read:
                self._file, self._read = (found.st_ino, found.st_dev), 0
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._read += len(line)
                yield line.decode("utf-8")

    def new_rows(self) -> Iterator[dict[str, Any]]:
        """The objects of the new lines. Raises DataError for a line that is none."""
        for line in self.new_lines():
            try:
                yield dict(json.loads(line))
            except (TypeError, ValueError) as error:
                raise DataError(
                    f"{self.path}: has a line that is no JSON object: {line[:60].strip()!r} ({error}). Remove the line."
                ) from None


def dump(row: Any) -> str:
    """One JSON line, newline included. NaN and infinities raise ValueError, because JSON cannot hold them."""
    return json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
