"""Reads the rows of tables as people have them: JSON, JSON Lines, CSV, TSV, Parquet or lines of text."""

import csv
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any

from restrain_openrlhf.data.jsonl import (
    BATCH_ROWS,
    SAVE_AS_UTF8,
    arrow,
    as_object,
    each_line,
    json_value,
    utf8_file,
)
from restrain_openrlhf.errors import DataError, no_such_file

Cells = Mapping[str, Any]
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
# The column of a file of plain lines. No other file has a column of this name.
LINE = "each line"


def is_table(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES


def placed_rows(path: Path) -> Iterator[tuple[str, Cells]]:
    """The rows of a table, one at a time, each with its place, such as "line 3" or "row 3".

    A file without a suffix, such as standard input, has JSON Lines. Raises DataError for a file that is no table, and
    for a damaged one, which names the place.
    """
    if not path.exists():
        raise DataError(no_such_file(path))
    if path.suffix.lower() not in READERS:
        raise DataError(
            f"{path}: is not a {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file. Convert it to one of these."
        )
    return ((place, as_object(path, place, row)) for place, row in READERS[path.suffix.lower()](path))


def _json_lines(path: Path) -> Iterator[tuple[str, object]]:
    for line in each_line(path):
        yield f"line {line.number}", json_value(f"{path}, line {line.number}", line.text)


def _json_rows(path: Path) -> Iterator[tuple[str, object]]:
    """The rows of a file that is an array, or has an object per line."""
    first, *_ = [line.text for line in islice(each_line(path), 1)] or [""]
    if not first.lstrip().startswith("["):
        return _json_lines(path)
    return _numbered(json_value(str(path), "\n".join(line.text for line in each_line(path))))


def _numbered(rows: Iterable[object]) -> Iterator[tuple[str, object]]:
    return ((f"row {number}", row) for number, row in enumerate(rows, start=1))


def _text_lines(path: Path) -> Iterator[tuple[str, object]]:
    for line in each_line(path):
        if line.text.startswith(("{", '["', "[{")):
            raise DataError(f"{path}, line {line.number}: looks like JSON. Rename the file to .jsonl, or to .json.")
        yield f"line {line.number}", {LINE: line.text}


def _parquet_rows(path: Path) -> Iterator[tuple[str, object]]:
    try:
        batches = arrow().parquet.ParquetFile(path).iter_batches(BATCH_ROWS)
        yield from _numbered(row for batch in batches for row in batch.to_pylist())
    except (OSError, arrow().ArrowException) as error:
        raise DataError(f"{path}: is not a complete Parquet file ({error}). Write it again.") from None


def _csv_rows(path: Path) -> Iterator[tuple[str, object]]:
    """The rows, with every cell as text, because guessing types would change answers such as 007 and 1.0.

    Rows of empty cells, which Excel writes below a table, are left out.
    """
    separator = _separator(path)
    records = _records(path, separator, strict=True)
    header = next(records, [])
    # Of two columns with one name only the last would be read. Columns without a name are never read.
    if twice := [name for name, count in Counter(header).items() if name and count > 1]:
        raise DataError(f"{path}: has the column {twice[0]!r} more than once. Rename or remove the others.")
    for number, cells in enumerate(records, start=1):
        if any(cells):
            if len(cells) != len(header):
                raise DataError(
                    f"{path}, row {number}: has a different number of cells than the header. Put cells that contain "
                    f"{SEPARATORS[separator]} in quotes."
                )
            yield f"row {number}", dict(zip(header, cells, strict=True))


def _separator(path: Path) -> str:
    """The separator that cuts the header into the most cells, which Excel chooses by the country."""
    known = ["\t"] if path.suffix.lower() == ".tsv" else list(SEPARATORS)
    return max(known, key=lambda each: len(next(_records(path, each), [])))


def _records(path: Path, separator: str, strict: bool = False) -> Iterator[Sequence[str]]:
    csv.field_size_limit(sys.maxsize)  # a cell may be longer than the 131,072 characters that are usual
    with utf8_file(path) as file:
        reader = csv.reader(TextIOWrapper(file, "utf-8-sig", newline=""), delimiter=separator, strict=strict)
        try:
            yield from reader
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: is not UTF-8 text ({error}). {SAVE_AS_UTF8}") from None
        except csv.Error as error:
            raise DataError(f"{path}, line {reader.line_num}: is not valid CSV ({error}). Fix the line.") from None


READERS: Mapping[str, Callable[[Path], Iterator[tuple[str, object]]]] = {
    "": _json_lines,
    ".jsonl": _json_lines,
    ".json": _json_rows,
    ".csv": _csv_rows,
    ".tsv": _csv_rows,
    ".txt": _text_lines,
    ".parquet": _parquet_rows,
}
SUFFIXES = tuple(READERS)[1:]
