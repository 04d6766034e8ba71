"""Makes a training file of a data set: reads and checks its rows, separates prompts from gold, says what was found."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.answers.extract import last_boxes
from restrain_openrlhf.data.contamination import words
from restrain_openrlhf.data.gold import PromptOnly, write_separated
from restrain_openrlhf.data.identity import set_digest, text_hash
from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.data.near_duplicates import NearDuplicates, near_duplicates
from restrain_openrlhf.data.outputs import whole_file
from restrain_openrlhf.data.problems import Problem
from restrain_openrlhf.data.sources import Row, TrainingSet, each_row_of
from restrain_openrlhf.errors import DataError

SHOWN = 5


@dataclass(frozen=True)
class Entry:
    """One prompt and its gold answer, if it has one; `where` names its row in errors."""

    where: str
    id: str
    problem: str
    answer: str | None


class CopyCheck(BaseModel):
    """A set's own count and digest (`identity.set_digest` of its prompts), and the known copy's; None: none is known.

    It is of the whole set without equal prompts, before near-duplicates are dropped or its first prompts are taken.
    """

    model_config = ConfigDict(frozen=True)

    count: int
    digest: str
    known_count: int | None
    known_digest: str | None

    @property
    def is_another(self) -> bool:
        """Whether it differs from the known copy."""
        return self.known_digest not in (None, self.digest)

    def verdict(self, name: str) -> str:
        """One sentence: the copy known, another one with both numbers and digests, or none to compare with."""
        if self.known_digest is None:
            return f"{name}: no copy of it is known, so its digest is compared with none."
        if not self.is_another:
            return f"{name}: this is the copy known, {self.count:,} prompts, digest {self.digest}."
        known = "" if self.known_count is None else f"{self.known_count:,} prompts, "
        return (
            f"{name}: this is another copy than the one known. This one: {self.count:,} prompts, digest "
            f"{self.digest}. The known one: {known}digest {self.known_digest}. Figures from the two may not be "
            "comparable."
        )


class Prepared(BaseModel):
    """What was written; it stands beside the prompts as `train.about.json`.

    `count` and `digest` are of the prompts that were written; `whole_set` has those of the set they were taken from.
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
    dropped_duplicates: int
    near_duplicates: NearDuplicates
    dropped_held_out: int = 0


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
    drop_near_duplicates: bool = False,
) -> Prepared:
    """Write `out` (prompts only), its gold sidecar and its description; `supervised` gets prompts with their answers.

    The whole set is checked; with `first`, so many of its prompts are written. A prompt that is one of the problems
    `held_out` is left out; of equal prompts the first is kept, of near ones what `near_duplicates` leaves. Raises
    DataError for missing columns, empty prompts, duplicates, another count than the known set's, fewer prompts than
    `first`, and for prompts without an answer where `supervised` is asked for.
    """
    entries = list(each_entry(entry, source))
    if entry.count not in (None, len(entries)) and not any_count:
        raise DataError(
            f"{entry.name}: {len(entries):,} rows, and the known set has {entry.count:,}. Give the whole set, or allow "
            "another count with --any-count."
        )
    whole = without_duplicates(entries, drop_duplicates)
    problems = {tuple(words(text)) for text in held_out}
    apart = [item for item in whole if tuple(words(item.problem)) not in problems]
    digest = set_digest(item.problem for item in apart)
    copy = CopyCheck(count=len(apart), digest=digest, known_count=entry.count, known_digest=entry.digest)
    near, going = near_duplicates([item.problem for item in apart], [item.answer for item in apart])
    if drop_near_duplicates:
        near = near.model_copy(update={"dropped": len(going)})
        apart = [item for place, item in enumerate(apart) if place not in going]
    kept = _first(entry, apart, first)
    if supervised is not None:
        write_rows(supervised, _supervised_rows(entry, kept))
    gold = {text_hash(item.problem): item.answer for item in kept if item.answer is not None}
    sidecar = write_separated(out, [PromptOnly(id=item.id, problem=item.problem) for item in kept], gold)
    prepared = Prepared(
        name=entry.name,
        source=str(entry.hub) if source == "hub" else source,
        licence=entry.hub.licence if entry.hub else "as your source says",
        prompts=out,
        gold=sidecar,
        count=len(kept),
        digest=set_digest(item.problem for item in kept),
        whole_set=copy,
        dropped_duplicates=len(entries) - len(whole),
        near_duplicates=near,
        dropped_held_out=len(whole) - copy.count,
    )
    about = out.with_name(f"{out.stem}.about.json")
    with whole_file(about) as file:
        file.write(prepared.model_dump_json(indent=2) + "\n")
    return prepared


def _first(entry: TrainingSet, prompts: list[Entry], first: int | None) -> list[Entry]:
    if not prompts:
        raise DataError(
            f"{entry.name}: no prompt is left without near-duplicates: all have conflicting answers. Check the column "
            "of the answers, or leave out --drop-near-duplicates."
        )
    if (first or 0) > len(prompts):
        raise DataError(
            f"{entry.name}: has {len(prompts):,} prompts, and the first {first:,} were asked for. Ask for less."
        )
    return prompts[:first]


def _supervised_rows(entry: TrainingSet, kept: Sequence[Entry]) -> list[Problem]:
    without = [item.where for item in kept if item.answer is None]
    if without:
        raise DataError(
            f"{entry.name}: {len(without)} of {len(kept)} prompts have no answer ({without[0]} is the first), so there "
            "is nothing to train on gold with. Name the column of the answers with --answer-column."
        )
    return [Problem(id=item.id, problem=item.problem, answer=str(item.answer)) for item in kept]


def each_entry(entry: TrainingSet, source: str) -> Iterator[Entry]:
    """The rows of the set, one at a time. Raises DataError for an empty set, missing columns and empty prompts."""
    number = 0
    for number, row in enumerate(each_row_of(entry.hub, source), start=1):
        yield _entry(entry, number, row)
    if not number:
        raise DataError(f"{source}: has no rows, so there is nothing to prepare.")


def without_duplicates(entries: Iterable[Entry], drop: bool) -> list[Entry]:
    """The first of each prompt. Raises DataError for equal prompts unless `drop`, and for two with one id.

    Equal prompts with different answers are refused in any case.
    """
    first: dict[str, Entry] = {}
    repeated = [item for item in entries if first.setdefault(item.problem, item) is not item]
    if repeated and not drop:
        raise DataError(
            f"{len(repeated)} prompts are there more than once: {_pairs(repeated, first)}. Remove them, or keep the "
            "first of each with --drop-duplicates."
        )
    conflicts = [item for item in repeated if item.answer != first[item.problem].answer]
    if conflicts:
        raise DataError(
            f"{len(conflicts)} repeated prompts have different answers: {_pairs(conflicts, first)}. Decide which is "
            "right, and remove the others."
        )
    by_id: dict[str, Entry] = {}
    for item in first.values():
        if (other := by_id.setdefault(item.id, item)) is not item:
            raise DataError(f"{other.where} and {item.where} have the same id {item.id!r}. Give each its own.")
    return list(first.values())


def _entry(entry: TrainingSet, number: int, row: Row) -> Entry:
    where = f"row {number}"
    for column in (entry.prompt, entry.answer):
        if column is not None and column not in row:
            raise DataError(
                f"{entry.name}, {where}: has no column {column!r}; its columns are {', '.join(sorted(map(str, row)))}. "
                "Name the right one with --prompt-column or --answer-column."
            )
    problem = row[entry.prompt]
    if not isinstance(problem, str) or not problem.strip():
        raise DataError(f"{entry.name}, {where}: {entry.prompt!r} is {problem!r}, not a prompt. Remove the row.")
    row_id = row.get("id")
    answer = _gold(f"{entry.name}, {where}: {entry.answer!r}", row[entry.answer]) if entry.answer else None
    return Entry(where, str(number - 1 if row_id is None else row_id), problem, answer)


def _gold(named: str, value: object) -> str | None:
    r"""The answer as text; of a boxed one, such as CoT-Self-Instruct's, the box's content: graders take no \boxed.

    An empty one is none. Raises DataError for a list, an object, and what is no number (nan).
    """
    if isinstance(value, list | dict) or (isinstance(value, float) and math.isnan(value)):
        raise DataError(f"{named} is {value!r}, and one answer as text or number is needed. Fix or remove the row.")
    text = "" if value is None else str(value)
    return (last_boxes(text) or text) if text.strip() else None


def _pairs(repeated: Sequence[Entry], first: dict[str, Entry]) -> str:
    shown = ", ".join(f"{item.where} as {first[item.problem].where}" for item in repeated[:SHOWN])
    return shown + (", …" if len(repeated) > SHOWN else "")
