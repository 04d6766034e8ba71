"""Data sets: those that are known by name, and raw rows from the hub or from a local file or folder."""

import csv
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from restrain_openrlhf.data.jsonl import AnyRow, each_row
from restrain_openrlhf.errors import DataError, no_such_file, reason_of

Row = Mapping[str, Any]
HUB = "hub"
FILES = (".jsonl", ".json", ".csv", ".parquet")


@dataclass(frozen=True)
class HubSet:
    """A data set on the Hugging Face hub; `gate` says how to get access where its owner restricts it."""

    id: str
    config: str | None = None
    split: str = "train"
    licence: str = "not stated"
    gate: str | None = None

    def __str__(self) -> str:
        return f"{self.id}{f' ({self.config})' if self.config else ''}, split {self.split}"


@dataclass(frozen=True)
class TrainingSet:
    """A training set.

    `prompt` and `answer` name columns; `count` and `digest` are those of the known copy, if there is one.

    Another count is an error, and another digest (`identity.set_digest`) is a warning. No prompt may be a problem of
    the benchmark `apart_from`, which was made from the same set.
    """

    name: str
    about: str
    prompt: str
    answer: str | None
    hub: HubSet | None = None
    count: int | None = None
    digest: str | None = None
    apart_from: str | None = None


DAPO14K = TrainingSet(
    name="dapo14k",
    about="DAPO-14k-MATH: the English split, prompts and answers as they are",
    prompt="prompt",
    answer="solution",
    hub=HubSet("open-r1/DAPO-Math-17k-Processed", config="en", licence="not stated on its card"),
    count=14_116,
    digest="cb8006ca3d13115bf283c1cdc3597d37364d97db56d27b749e454936d8bd3390",
)
SYNTHETIC_S1K = TrainingSet(
    name="synthetic-s1k",
    about="synthetic S1k of CoT-Self-Instruct, 5,000 prompts; no public location was found: give your copy",
    prompt="prompt",
    answer=None,
    count=5_000,
)
MATH12K = TrainingSet(
    name="math12k",
    about="MATH without MATH-500: the 12,000 problems of PRM800K's training split",
    prompt="problem",
    answer="answer",
    hub=HubSet("hiyouga/math12k", licence="not checked; MATH is MIT"),
    count=12_000,
    apart_from="math500",
)
OWN = TrainingSet(
    name="own",
    about="any JSONL, JSON, Parquet or CSV of your own, or a hub id by --hub-id; columns by options",
    prompt="problem",
    answer=None,
)
TRAINING_SETS = {entry.name: entry for entry in (DAPO14K, MATH12K, SYNTHETIC_S1K, OWN)}


def training_set(name: str) -> TrainingSet:
    """The training set of that name. Raises DataError if there is none."""
    if name not in TRAINING_SETS:
        raise DataError(
            f"{name!r} is no known training set. Known: {', '.join(TRAINING_SETS)} (`restrain data list`); for a file "
            "of your own: `restrain data prepare own --source FILE`."
        )
    return TRAINING_SETS[name]


def has_column(row: Row, name: str) -> bool:
    """Whether a row has a column. `reward_model.ground_truth` is the key `ground_truth` of the object in a column."""
    holder, key = _holder(row, name)
    return key in holder


def column_of(row: Row, name: str) -> Any:
    """The value of a column for which `has_column` holds."""
    holder, key = _holder(row, name)
    return holder[key]


def message_text(prompt: Any) -> Any:
    """The text of a chat of one message by the user, which is the prompt in verl's data sets; else what is given."""
    is_message = isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], dict)
    return prompt[0].get("content") if is_message and prompt[0].get("role") == "user" else prompt


def _holder(row: Row, name: str) -> tuple[Row, str]:
    """The row, or the object in one of its columns, and the key there."""
    outer, _, key = name.partition(".")
    inside = row.get(outer)
    return (inside, key) if name not in row and isinstance(inside, dict) else (row, name)


def load_rows(hub: HubSet | None, source: str) -> list[Row]:
    return list(each_row_of(hub, source))


def each_row_of(hub: HubSet | None, source: str) -> Iterator[Row]:
    """The rows, one at a time.

    `source` is `hub`, or a path: a file of FILES, or a folder laid out as on the hub.

    Raises DataError if the set cannot be loaded, saying what to do, such as getting access to a gated set.
    """
    if source != HUB:
        return _from_path(Path(source), hub)
    if hub is None:
        raise DataError("No place on the hub is known for this set. Give your own copy: --source PATH.")
    return load_dataset(hub.id, hub.config, hub.split, hub)


def _from_path(path: Path, hub: HubSet | None) -> Iterator[Row]:
    if not path.exists():
        raise DataError(no_such_file(path, "file or folder"))
    if path.is_dir():
        return load_dataset(str(path), hub.config if hub else None, hub.split if hub else "train", None)
    match path.suffix.lower():
        case ".jsonl" | ".json" | ".parquet":
            return (row.model_dump() for row in each_row(path, AnyRow))
        case ".csv":
            return _from_csv(path)
    raise DataError(f"{path}: is not a {', '.join(FILES[:-1])} or {FILES[-1]} file. Convert it to one of these.")


def _from_csv(path: Path) -> Iterator[Row]:
    """The rows, with every cell as text, because guessing types would change answers such as 007 and 1.0."""
    csv.field_size_limit(sys.maxsize)  # a cell may be longer than the 131,072 characters that are usual
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        try:
            _refuse_other_separators(path, reader.fieldnames or ())
            _refuse_columns_twice(path, reader.fieldnames or ())
            for number, row in enumerate(reader, start=1):
                yield _whole(path, number, row)
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: is not UTF-8 text ({error}). Save it as UTF-8.") from None
        except csv.Error as error:
            raise DataError(f"{path}, line {reader.line_num}: is not valid CSV ({error}). Fix the line.") from None


def _refuse_other_separators(path: Path, header: Sequence[str]) -> None:
    for separator, name in ((";", "';'"), ("\t", "a tab")):
        if len(header) == 1 and separator in header[0]:
            raise DataError(
                f"{path}: its cells are separated by {name}, not by commas (the header is {header[0]!r}). Save it "
                "with commas, or as JSON Lines."
            )


def _refuse_columns_twice(path: Path, header: Sequence[str]) -> None:
    """Of two columns with one name only the last would be read. Columns without a name are never read."""
    if twice := [name for name, count in Counter(header).items() if name and count > 1]:
        raise DataError(f"{path}: has the column {twice[0]!r} more than once. Rename or remove the others.")


def _whole(path: Path, number: int, row: Row) -> Row:
    # DictReader uses None as the name of surplus cells, and as the value of missing ones.
    if None in row or None in row.values():
        raise DataError(
            f"{path}, row {number}: has a different number of cells than the header. Put cells that contain commas in "
            "quotes."
        )
    return row


def load_dataset(name: str, config: str | None, split: str, hub: HubSet | None, **options: Any) -> Iterator[Row]:
    """The rows, one at a time, by Hugging Face's library; `hub` is the set on the hub, None for local files.

    Raises DataError if they cannot be read or downloaded.
    """
    try:
        import datasets  # noqa: PLC0415 - costs a second
        import httpx  # noqa: PLC0415 - what the hub's client raises without a network
    except ImportError as error:
        raise DataError(
            f"{name}: reading it needs {error.name}. Install it (`pip install restrain-openrlhf[data]`), or give a "
            "JSONL or CSV file."
        ) from error
    # Local files get a new cache, because the loader's own would return the rows of another folder of the same name.
    fresh = TemporaryDirectory() if hub is None else nullcontext(None)
    with fresh as cache:
        try:
            rows = datasets.load_dataset(name, config, split=split, cache_dir=cache, **options)
        except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError, httpx.HTTPError) as error:
            raise DataError(_why(name, hub, error, options)) from error
        yield from rows


def _why(name: str, hub: HubSet | None, error: Exception, options: Mapping[str, Any]) -> str:
    reason = reason_of(error)
    if hub is None:
        return (
            f"{options.get('data_files', name)}: cannot be loaded ({reason}). Check the file, or the folder's layout."
        )
    gate = f" This set is gated: {hub.gate}" if hub.gate else ""
    return (
        f"{hub}: could not be downloaded from the hub ({reason}).{gate} Without access to the hub, give a local copy "
        "instead (a JSONL, CSV or Parquet file, or a folder laid out as on the hub)."
    )
