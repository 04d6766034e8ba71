"""The prompts of a training set, one of each row: read by their columns, and without equal prompts and ids."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from restrain_openrlhf.answers.boxes import last_boxes
from restrain_openrlhf.data.catalogue import TrainingSet
from restrain_openrlhf.data.sources import Row, load_rows
from restrain_openrlhf.errors import DataError

SHOWN = 5


@dataclass(frozen=True)
class Entry:
    """One prompt and its gold answer, if it has one; `where` names its row in errors."""

    where: str
    id: str
    problem: str
    answer: str | None


def read_entries(entry: TrainingSet, source: str) -> list[Entry]:
    """Every row of the set. Raises DataError for an empty set, missing columns and empty prompts."""
    entries = [_entry(entry, number, row) for number, row in enumerate(load_rows(entry.hub, source), start=1)]
    if not entries:
        raise DataError(f"{source}: has no rows, so there is nothing to prepare.")
    return entries


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
    _refuse_repeated_ids(first.values())
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


def _refuse_repeated_ids(entries: Iterable[Entry]) -> None:
    seen: dict[str, str] = {}
    for item in entries:
        if item.id in seen:
            raise DataError(f"{seen[item.id]} and {item.where} have the same id {item.id!r}. Give each its own.")
        seen[item.id] = item.where
