"""Data sets: those that are known by name, and raw rows from the hub or from a local file or folder."""

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from restrain_openrlhf.data.tables import placed_rows
from restrain_openrlhf.errors import DataError, reason_of

Row = Mapping[str, Any]
HUB = "hub"
# How commands take a copy.
COPY_OPTIONS = "--source PATH of `data prepare`, NAME=PATH of `eval`"


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

    `prompt` and `answer` name columns; a `prompt` of None is found by its name (data/prompt_reader.py). `count` and
    `digest` are those of the known copy, if there is one.

    Another count is an error, and another digest (`identity.set_digest`) is a warning. No prompt may be a problem of
    the benchmark `apart_from`, which was made from the same set.
    """

    name: str
    about: str
    prompt: str | None
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
    about="any table of your own (JSONL, JSON, CSV, TSV, Parquet, text), or a hub id by --hub-id; columns by options",
    prompt=None,
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


def load_rows(hub: HubSet | None, source: str) -> list[Row]:
    return [row for _, row in placed_rows_of(hub, source)]


def placed_rows_of(hub: HubSet | None, source: str) -> Iterator[tuple[str, Row]]:
    """The rows, one at a time, each with its place; `source` is `hub`, or a path to a table (data/tables.py) or a
    folder laid out as on the hub.

    Raises DataError if the set cannot be loaded, saying what to do, such as getting access to a gated set.
    """
    path = Path(source)
    if source == HUB:
        if hub is None:
            raise DataError(f"No place on the hub is known for this set. Give a copy of your own ({COPY_OPTIONS}).")
        rows = load_dataset(hub.id, hub.config, hub.split, hub)
    elif path.is_dir():
        rows = load_dataset(source, hub.config if hub else None, hub.split if hub else "train", None)
    else:
        return placed_rows(path)
    return ((f"row {number}", row) for number, row in enumerate(rows, start=1))


def load_dataset(name: str, config: str | None, split: str, hub: HubSet | None) -> Iterator[Row]:
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
            rows = datasets.load_dataset(name, config, split=split, cache_dir=cache)
        except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError, httpx.HTTPError) as error:
            raise DataError(_why(name, hub, error)) from error
        yield from rows


def _why(name: str, hub: HubSet | None, error: Exception) -> str:
    reason = reason_of(error)
    if hub is None:
        return f"{name}: cannot be loaded ({reason}). Check the file, or the folder's layout."
    gate = f" This set is gated: {hub.gate}" if hub.gate else ""
    return (
        f"{hub}: could not be downloaded from the hub ({reason}).{gate} Without access to the hub, give a local copy "
        "instead (a JSONL, CSV or Parquet file, or a folder laid out as on the hub)."
    )
