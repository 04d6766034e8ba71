"""Makes a training file from a data set: reads and checks rows, separates prompts from gold, describes the result."""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from pydantic import BaseModel

from restrain_openrlhf.answers.extract import last_boxes
from restrain_openrlhf.data.gold import GoldAnswer, PromptOnly, sidecar_path
from restrain_openrlhf.data.identity import digest_of_set, text_digest, text_hash
from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.data.outputs import output_file, whole_file, write_whole
from restrain_openrlhf.data.problems import Problem
from restrain_openrlhf.data.prompt_reader import PromptReader, TextOrChat, column_of, has_column, text_of
from restrain_openrlhf.data.sources import HUB, Row, TrainingSet, placed_rows_of
from restrain_openrlhf.errors import DataError

MAX_NAMED = 5
_WORD = re.compile(r"\\?[^\W\d_]+|\d+|[^\s\w$,.;:!?'\"()\[\]{}]")


@dataclass(frozen=True)
class Entry:
    """One prompt, and its gold answer if it has one."""

    id: str
    problem: TextOrChat
    answer: str | None

    @property
    def text(self) -> str:
        return text_of(self.problem)


class CopyCheck(BaseModel, frozen=True):
    """The count and digest (`identity.set_digest`) of a set's prompts, and of the known copy's; None: none is known.

    Both are of the whole set without repeated prompts, before its first prompts are selected.
    """

    count: int
    digest: str
    known_count: int | None
    known_digest: str | None

    @property
    def is_another(self) -> bool:
        return self.known_digest not in (None, self.digest)

    def verdict(self, name: str) -> str:
        """A sentence that says whether the set is the known copy."""
        if self.known_digest is None:
            return f"{name}: no copy of it is known, so its digest is compared with none."
        if not self.is_another:
            return f"{name}: this is the known copy, {self.count:,} prompts, digest {self.digest}."
        known = "" if self.known_count is None else f"{self.known_count:,} prompts, "
        return (
            f"{name}: this is another copy than the one known. This one: {self.count:,} prompts, digest "
            f"{self.digest}. The known one: {known}digest {self.known_digest}. Figures from the two may not be "
            "comparable."
        )


class Prepared(BaseModel, frozen=True):
    """A description of what was written, stored beside the prompts as `train.about.json`.

    `count` and `digest` are those of the prompts that were written, and `whole_set` has those of the whole set. `read`
    says what was read as what.
    """

    name: str
    source: str
    licence: str
    prompts: Path
    gold: Path | None
    count: int
    digest: str
    whole_set: CopyCheck
    read: str = ""
    dropped_duplicates: int
    dropped_held_out: int = 0

    def write(self) -> None:
        about = self.prompts.with_name(f"{self.prompts.stem}.about.json")
        write_whole(about, self.model_dump_json(indent=2) + "\n")


def prepare(
    entry: TrainingSet,
    source: str,
    out: Path,
    supervised: Path | None = None,
    first: int | None = None,
    held_out: Sequence[str] = (),
    *,
    any_count: bool = False,
    drop_duplicates: bool = False,
) -> Prepared:
    """Write `out` (only prompts), its gold sidecar and its description; `supervised` gets prompts with answers.

    The whole set is checked, and the `first` prompts of it are written (None: all). Prompts that are among the problems
    `held_out` are left out, and of equal prompts the first is kept. Raises DataError for missing columns, empty
    prompts, duplicates, another count than the known set's, fewer prompts than `first`, and for prompts without an
    answer if there is `supervised`.
    """
    reader, rows = PromptReader("--prompt-column", entry.prompt), Survey(frozenset(map(_words, held_out)), first)
    sidecar = output_file(sidecar_path(out))
    with ExitStack() as opened:
        # The file of prompts is opened first, and so gets its name last, when their gold is there.
        paths = (path for path in (out, sidecar, supervised) if path is not None)
        prompts, gold, *both = (opened.enter_context(whole_file(path)) for path in paths)
        for item in _each_entry(entry, source, reader):
            if rows.takes(item):
                _write(item, prompts, gold, *both)
        _refuse(entry, rows, any_count, drop_duplicates)
        has_gold = gold.tell() > 0
    if not has_gold:
        sidecar.unlink()
    prepared = Prepared(
        name=entry.name,
        source=str(entry.hub) if source == HUB else source,
        licence=entry.hub.licence if entry.hub else "as your source says",
        prompts=out,
        gold=sidecar if has_gold else None,
        count=len(rows.written),
        digest=digest_of_set(rows.written),
        whole_set=CopyCheck(
            count=len(rows.apart),
            digest=digest_of_set(rows.apart),
            known_count=entry.count,
            known_digest=entry.digest,
        ),
        read=reader.summary(),
        dropped_duplicates=len(rows.repeated),
        dropped_held_out=len(rows.left_out),
    )
    prepared.write()
    return prepared


def _write(item: Entry, prompts: IO[str], gold: IO[str], supervised: IO[str] | None = None) -> None:
    """Raises DataError for a prompt without an answer if there is `supervised`."""
    prompts.write(dump(PromptOnly(id=item.id, problem=item.problem).model_dump(mode="json")))
    if item.answer is not None:
        gold.write(dump(GoldAnswer(prompt_hash=text_hash(item.text), answer=item.answer).model_dump()))
    if supervised is not None:
        if item.answer is None:
            raise DataError(
                f"The prompt with the id {item.id!r} has no answer, but training on gold needs one for each. Name the "
                "column of the answers with --answer-column, or remove the prompt."
            )
        supervised.write(dump(Problem(id=item.id, problem=item.problem, answer=item.answer).model_dump()))


@dataclass(frozen=True)
class Survey:
    """What is kept in memory of the rows while they are read: hashes instead of texts, and places counted from 0.

    A prompt is held out if it is equal, word by word, to one of the problems `held_out`, and is then in `left_out`. Of
    the others the `first` are written (None: all). `places` has the place of each prompt by its digest, `answers` a
    hash of each row's answer, and None where a row has none, `ids` the place by the hash of an id, and `repeated` the
    place of a repeated prompt and of the first with its text.
    """

    held_out: frozenset[tuple[str, ...]]
    first: int | None
    places: dict[bytes, int] = field(default_factory=dict)
    answers: list[int | None] = field(default_factory=list)
    ids: dict[int, int] = field(default_factory=dict)
    repeated: list[tuple[int, int]] = field(default_factory=list)
    left_out: set[bytes] = field(default_factory=set)

    def takes(self, item: Entry) -> bool:
        """Note the next row. Returns whether its prompt is to be written. Raises DataError for an id that is there."""
        digest, place = text_digest(item.text), len(self.answers)
        self.answers.append(None if item.answer is None else hash(item.answer))
        if (before := self.places.setdefault(digest, place)) != place:
            self.repeated.append((place, before))
            return False
        if (other := self.ids.setdefault(hash(item.id), place)) != place:
            raise DataError(
                f"{_where(other)} and {_where(place)} have the same id {item.id!r}. Give each row an id of its own."
            )
        if self.held_out and _words(item.text) in self.held_out:
            self.left_out.add(digest)
            return False
        return self.first is None or len(self.places) - len(self.left_out) <= self.first

    @property
    def apart(self) -> list[bytes]:
        """The digests of all prompts that are not held out."""
        return [digest for digest in self.places if digest not in self.left_out]

    @property
    def written(self) -> list[bytes]:
        return self.apart[: self.first]


def _refuse(entry: TrainingSet, rows: Survey, any_count: bool, drop_duplicates: bool) -> None:
    """Raises DataError where the set as a whole is not as it must be."""
    if not any_count and entry.count not in (None, len(rows.answers)):
        raise DataError(
            f"{entry.name}: has {len(rows.answers):,} rows, but the known set has {entry.count:,}. Give the whole set, "
            "or allow another count with --any-count."
        )
    if rows.repeated and not drop_duplicates:
        raise DataError(
            f"{len(rows.repeated)} prompts appear more than once: {_pairs(rows.repeated)}. Remove the copies, or keep "
            "the first of each with --drop-duplicates."
        )
    if conflicts := [(place, first) for place, first in rows.repeated if rows.answers[place] != rows.answers[first]]:
        raise DataError(
            f"{len(conflicts)} repeated prompts have different answers: {_pairs(conflicts)}. Decide which is right, "
            "and remove the others."
        )
    if not rows.apart:
        raise DataError(
            f"{entry.name}: no prompt is left: all are problems of {entry.apart_from}. Give the training set itself."
        )
    if (rows.first or 0) > len(rows.apart):
        raise DataError(
            f"{entry.name}: has {len(rows.apart):,} prompts, but the first {rows.first:,} were asked for. Ask for "
            "fewer."
        )


def _each_entry(entry: TrainingSet, source: str, reader: PromptReader) -> Iterator[Entry]:
    """The rows of a set, one at a time. Raises DataError for an empty set, missing columns and bad prompts."""
    for number, (place, row) in enumerate(placed_rows_of(entry.hub, source)):
        yield _entry(entry, reader, number, f"{entry.name if source == HUB else source}, {place}", row)
    if not reader.rows:
        raise DataError(f"{source}: has no rows, so there is nothing to prepare.")


def _entry(entry: TrainingSet, reader: PromptReader, number: int, where: str, row: Row) -> Entry:
    if entry.answer is not None and not has_column(row, entry.answer):
        raise DataError(
            f"{where}: has no column {entry.answer!r}; its columns are {', '.join(sorted(map(str, row)))}. Name the "
            "right one with --answer-column."
        )
    problem, row_id = reader.read(where, row), row.get("id")
    answer = _gold(f"{where}: {entry.answer!r}", column_of(row, entry.answer)) if entry.answer else None
    return Entry(str(number if row_id is None else row_id), problem, answer)


def _gold(named: str, value: object) -> str | None:
    r"""The answer as text, without a box such as CoT-Self-Instruct's, because graders expect none.

    An empty answer is None. Raises DataError for a list, an object, NaN and infinities.
    """
    if isinstance(value, list | dict) or (isinstance(value, float) and not math.isfinite(value)):
        raise DataError(
            f"{named} is {value!r}, but a single answer, as text or a number, is needed. Correct or remove the row."
        )
    text = "" if value is None else str(value)
    return (last_boxes(text) or text) if text.strip() else None


def _words(text: str) -> tuple[str, ...]:
    """The lower-case words, numbers, LaTeX commands and operators of a text, without dollars and punctuation."""
    return tuple(_WORD.findall(text.lower()))


def _where(place: int) -> str:
    return f"row {place + 1}"


def _pairs(repeated: Sequence[tuple[int, int]]) -> str:
    shown = ", ".join(f"{_where(place)} as {_where(first)}" for place, first in repeated[:MAX_NAMED])
    return shown + (", …" if len(repeated) > MAX_NAMED else "")
