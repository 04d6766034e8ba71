"""Makes a training file of a data set: checks its rows, separates prompts from gold, and says what was found."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.data.catalogue import TrainingSet
from restrain_openrlhf.data.gold_split import PromptOnly, SupervisedRow, write_separated
from restrain_openrlhf.data.held_out import without_problems
from restrain_openrlhf.data.identity import set_digest, text_hash
from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.data.sources import Row, load_rows
from restrain_openrlhf.errors import DataError

SHOWN = 5


@dataclass(frozen=True)
class Checks:
    """What a user lets pass: a count other than the known set's, and duplicates (the first is kept).

    `held_out`: problems of a benchmark; a prompt that is one of them is left out.
    """

    any_count: bool = False
    drop_duplicates: bool = False
    expected_digest: str | None = None
    held_out: tuple[str, ...] = ()


class Prepared(BaseModel):
    """What was written; it stands beside the prompts as `train.about.json`. `digest` is of the set of problems."""

    model_config = ConfigDict(frozen=True)

    name: str
    source: str
    licence: str
    prompts: Path
    gold: Path | None
    count: int
    digest: str
    digest_checked: bool
    dropped_duplicates: int
    dropped_held_out: int = 0


@dataclass(frozen=True)
class _Entry:
    where: str
    id: str
    problem: str
    answer: str | None


def prepare(
    entry: TrainingSet,
    source: str,
    out: Path,
    checks: Checks,
    supervised: Path | None = None,
    first: int | None = None,
) -> Prepared:
    """Write `out` (prompts only), its gold sidecar and its description; `supervised` gets prompts with their answers.

    The whole set is checked; with `first`, so many of its prompts are written. Raises DataError for missing columns,
    empty prompts, duplicates, a count or digest other than expected, fewer prompts than `first`, and for prompts
    without an answer where `supervised` is asked for.
    """
    entries = [_entry(entry, number, row) for number, row in enumerate(load_rows(entry.hub, source), start=1)]
    if not entries:
        raise DataError(f"{source}: has no rows, so there is nothing to prepare.")
    _check_count(entry, len(entries), checks)
    distinct = _without_duplicates(entries, checks)
    whole = without_problems(distinct, checks.held_out)
    digest = set_digest(item.problem for item in whole)
    expected = checks.expected_digest or entry.digest
    if expected not in (None, digest):
        raise DataError(f"{entry.name}: the prompts' digest is {digest}, not {expected}. This is another set.")
    if first is not None and first > len(whole):
        raise DataError(
            f"{entry.name}: has {len(whole):,} prompts, and the first {first:,} were asked for. Ask for less."
        )
    kept = whole[:first]
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
        digest_checked=expected is not None,
        dropped_duplicates=len(entries) - len(distinct),
        dropped_held_out=len(distinct) - len(whole),
    )
    about = out.with_name(f"{out.stem}.about.json")
    about.write_text(prepared.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return prepared


def _supervised_rows(entry: TrainingSet, kept: Sequence[_Entry]) -> list[SupervisedRow]:
    without = [item.where for item in kept if item.answer is None]
    if without:
        raise DataError(
            f"{entry.name}: {len(without)} of {len(kept)} prompts have no answer ({without[0]} is the first), so there "
            "is nothing to train on gold with. Name the column of the answers with --answer-column."
        )
    return [SupervisedRow(id=item.id, problem=item.problem, answer=str(item.answer)) for item in kept]


def _entry(entry: TrainingSet, number: int, row: Row) -> _Entry:
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
    answer = row[entry.answer] if entry.answer else None
    row_id = row.get("id")
    return _Entry(
        where, str(number - 1 if row_id is None else row_id), problem, None if answer is None else str(answer)
    )


def _check_count(entry: TrainingSet, count: int, checks: Checks) -> None:
    if entry.count not in (None, count) and not checks.any_count:
        raise DataError(
            f"{entry.name}: {count:,} rows, and the known set has {entry.count:,}. Give the whole set, or allow "
            "another count with --any-count."
        )


def _without_duplicates(entries: Iterable[_Entry], checks: Checks) -> list[_Entry]:
    first: dict[str, _Entry] = {}
    repeated = [item for item in entries if first.setdefault(item.problem, item) is not item]
    if repeated and not checks.drop_duplicates:
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


def _pairs(repeated: Sequence[_Entry], first: dict[str, _Entry]) -> str:
    shown = ", ".join(f"{item.where} as {first[item.problem].where}" for item in repeated[:SHOWN])
    return shown + (", …" if len(repeated) > SHOWN else "")


def _refuse_repeated_ids(entries: Iterable[_Entry]) -> None:
    seen: dict[str, str] = {}
    for item in entries:
        if item.id in seen:
            raise DataError(f"{seen[item.id]} and {item.where} have the same id {item.id!r}. Give each its own.")
        seen[item.id] = item.where
