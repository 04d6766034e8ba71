"""Makes a training file from a data set: reads and checks rows, separates prompts from gold, describes the result."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress, islice
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.answers.extract import last_boxes
from restrain_openrlhf.data.gold import GoldAnswer, PromptOnly, write_separated
from restrain_openrlhf.data.identity import digest_of_set, text_digest, text_hash
from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.data.outputs import write_whole
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


class CopyCheck(BaseModel):
    """The count and digest (`identity.set_digest`) of a set's prompts, and of the known copy's; None: none is known.

    Both are of the whole set without repeated prompts, before its first prompts are selected.
    """

    model_config = ConfigDict(frozen=True)

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


class Prepared(BaseModel):
    """A description of what was written, stored beside the prompts as `train.about.json`.

    `count` and `digest` are those of the prompts that were written, and `whole_set` has those of the whole set. `read`
    says what was read as what.
    """

    model_config = ConfigDict(frozen=True)

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
        """Write this description beside the prompts."""
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
    reader, read = PromptReader("--prompt-column", entry.prompt), partial(each_entry, entry, source)
    rows = Survey.of(read(reader), held_out)
    if not any_count:
        _refuse_another_count(entry, len(rows.answers))
    _refuse_repeated(rows, drop_duplicates)
    kept = _first(entry, list(rows.apart.values()), first)
    prepared = Prepared(
        name=entry.name,
        source=str(entry.hub) if source == "hub" else source,
        licence=entry.hub.licence if entry.hub else "as your source says",
        prompts=out,
        gold=_write(entry, read, rows, kept, out, supervised),
        count=len(kept),
        digest=digest_of_set(islice(rows.apart, len(kept))),
        whole_set=CopyCheck(
            count=len(rows.apart),
            digest=digest_of_set(rows.apart),
            known_count=entry.count,
            known_digest=entry.digest,
        ),
        read=reader.summary(),
        dropped_duplicates=len(rows.repeated),
        dropped_held_out=len(rows.answers) - len(rows.repeated) - len(rows.apart),
    )
    prepared.write()
    return prepared


def _refuse_another_count(entry: TrainingSet, count: int) -> None:
    if entry.count not in (None, count):
        raise DataError(
            f"{entry.name}: has {count:,} rows, but the known set has {entry.count:,}. Give the whole set, or allow "
            "another count with --any-count."
        )


@dataclass(frozen=True)
class Survey:
    """What is kept in memory of the rows while they are read: hashes instead of texts, and places counted from 0.

    `apart` has the place of each prompt by its digest, without repeated and held-out prompts. `answers` has a hash of
    each row's answer, and None where a row has none. `repeated` has the place of a repeated prompt and of the first
    with its text, and `same_ids` two places and their id.
    """

    apart: dict[bytes, int] = field(default_factory=dict)
    answers: list[int | None] = field(default_factory=list)
    repeated: list[tuple[int, int]] = field(default_factory=list)
    same_ids: list[tuple[int, int, str]] = field(default_factory=list)

    @classmethod
    def of(cls, entries: Iterable[Entry], held_out: Sequence[str]) -> Self:
        """A prompt is held out if it is equal, word by word, to one of the problems `held_out`."""
        found, ids = cls(), dict[int, int]()
        problems, out = {_words(text) for text in held_out}, set()
        for place, item in enumerate(entries):
            found.answers.append(None if item.answer is None else hash(item.answer))
            digest = text_digest(item.text)
            if (first := found.apart.setdefault(digest, place)) != place:
                found.repeated.append((place, first))
                continue
            if (other := ids.setdefault(hash(item.id), place)) != place:
                found.same_ids.append((other, place, item.id))
            if problems and _words(item.text) in problems:
                out.add(digest)
        for digest in out:
            del found.apart[digest]
        return found


def _write(
    entry: TrainingSet,
    read: Callable[[], Iterator[Entry]],
    rows: Survey,
    kept: Sequence[int],
    out: Path,
    supervised: Path | None,
) -> Path | None:
    """Write the rows at the places `kept`, reading the source again for each file. Returns the gold sidecar."""
    is_kept = bytearray(len(rows.answers))
    for place in kept:
        is_kept[place] = True
    without = [place for place in kept if rows.answers[place] is None]
    if supervised is not None:
        _refuse_without_answer(entry, len(kept), without)
        with_gold = compress(read(), is_kept)
        write_rows(supervised, (Problem(id=x.id, problem=x.problem, answer=str(x.answer)) for x in with_gold))
    gold = (
        GoldAnswer(prompt_hash=text_hash(each.text), answer=each.answer)
        for each in compress(read(), is_kept)
        if each.answer is not None
    )
    prompts = (PromptOnly(id=each.id, problem=each.problem) for each in compress(read(), is_kept))
    return write_separated(out, prompts, gold if len(without) < len(kept) else None)


def _first(entry: TrainingSet, places: Sequence[int], first: int | None) -> Sequence[int]:
    if not places:
        raise DataError(
            f"{entry.name}: no prompt is left: all are problems of {entry.apart_from}. Give the training set itself."
        )
    if (first or 0) > len(places):
        raise DataError(
            f"{entry.name}: has {len(places):,} prompts, but the first {first:,} were asked for. Ask for fewer."
        )
    return places[:first]


def _refuse_without_answer(entry: TrainingSet, of: int, without: Sequence[int]) -> None:
    if without:
        raise DataError(
            f"{entry.name}: {len(without)} of {of} prompts have no answer (the first is {_where(without[0])}), but "
            "training on gold needs one for each. Name the column of the answers with --answer-column."
        )


def each_entry(entry: TrainingSet, source: str, reader: PromptReader | None = None) -> Iterator[Entry]:
    """The rows of a set, one at a time. Raises DataError for an empty set, missing columns and bad prompts."""
    reader = reader or PromptReader("--prompt-column", entry.prompt)
    for number, (place, row) in enumerate(placed_rows_of(entry.hub, source)):
        yield _entry(entry, reader, number, f"{entry.name if source == HUB else source}, {place}", row)
    if not reader.rows:
        raise DataError(f"{source}: has no rows, so there is nothing to prepare.")


def _refuse_repeated(rows: Survey, drop: bool) -> None:
    """Raises DataError for equal prompts unless `drop` is set, where their answers differ, and for two equal ids."""
    if rows.repeated and not drop:
        raise DataError(
            f"{len(rows.repeated)} prompts appear more than once: {_pairs(rows.repeated)}. Remove the copies, or keep "
            "the first of each with --drop-duplicates."
        )
    conflicts = [(place, first) for place, first in rows.repeated if rows.answers[place] != rows.answers[first]]
    if conflicts:
        raise DataError(
            f"{len(conflicts)} repeated prompts have different answers: {_pairs(conflicts)}. Decide which is right, "
            "and remove the others."
        )
    for first, again, name in rows.same_ids[:1]:
        raise DataError(
            f"{_where(first)} and {_where(again)} have the same id {name!r}. Give each row an id of its own."
        )


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
