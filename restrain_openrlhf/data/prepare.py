"""Makes a training file of a data set: checks its rows, separates prompts from gold, and says what was found."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.data.catalogue import TrainingSet
from restrain_openrlhf.data.entries import Entry, read_entries, without_duplicates
from restrain_openrlhf.data.gold_split import PromptOnly, SupervisedRow, write_separated
from restrain_openrlhf.data.held_out import without_problems
from restrain_openrlhf.data.identity import set_digest, text_hash
from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.data.known_copy import CopyCheck
from restrain_openrlhf.data.near_duplicates import NearDuplicates, counted, near_duplicates
from restrain_openrlhf.data.outputs import whole_file
from restrain_openrlhf.errors import DataError


@dataclass(frozen=True)
class Checks:
    """What a user lets pass: a count other than the known set's, and duplicates (the first is kept).

    `drop_near_duplicates` drops what `near_duplicates.Grouped.dropped` names. `held_out`: problems of a benchmark; a
    prompt that is one of them is left out.
    """

    any_count: bool = False
    drop_duplicates: bool = False
    drop_near_duplicates: bool = False
    expected_digest: str | None = None
    held_out: tuple[str, ...] = ()


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
    is_known_copy: bool | None
    dropped_duplicates: int
    near_duplicates: NearDuplicates
    dropped_held_out: int = 0


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
    empty prompts, duplicates, another count than the known set's, another digest than `checks` expects, fewer prompts
    than `first`, and for prompts without an answer where `supervised` is asked for.
    """
    entries = read_entries(entry, source)
    _check_count(entry, len(entries), checks)
    whole = without_duplicates(entries, checks.drop_duplicates)
    apart = without_problems(whole, checks.held_out)
    copy = _compared(entry, apart, checks)
    distinct, near = _without_near_duplicates(apart, checks)
    kept = _first(entry, distinct, first)
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
        is_known_copy=copy.is_known,
        dropped_duplicates=len(entries) - len(whole),
        near_duplicates=near,
        dropped_held_out=len(whole) - len(apart),
    )
    about = out.with_name(f"{out.stem}.about.json")
    with whole_file(about) as file:
        file.write(prepared.model_dump_json(indent=2) + "\n")
    return prepared


def _compared(entry: TrainingSet, whole: Sequence[Entry], checks: Checks) -> CopyCheck:
    digest = set_digest(item.problem for item in whole)
    if checks.expected_digest not in (None, digest):
        raise DataError(
            f"{entry.name}: the prompts' digest is {digest}, not {checks.expected_digest}. This is another set."
        )
    return CopyCheck(count=len(whole), digest=digest, known_count=entry.count, known_digest=entry.digest)


def _without_near_duplicates(whole: list[Entry], checks: Checks) -> tuple[list[Entry], NearDuplicates]:
    problems, answers = [item.problem for item in whole], [item.answer for item in whole]
    found = near_duplicates(problems, answers)
    dropped = found.dropped() if checks.drop_near_duplicates else frozenset()
    kept = [item for place, item in enumerate(whole) if place not in dropped]
    return kept, counted(problems, answers, found, checks.drop_near_duplicates)


def _first(entry: TrainingSet, prompts: list[Entry], first: int | None) -> list[Entry]:
    if not prompts:
        raise DataError(
            f"{entry.name}: no prompt is left without near-duplicates: all have conflicting answers. Check the column "
            "of the answers, or leave out --drop-near-duplicates."
        )
    if first is not None and first > len(prompts):
        raise DataError(
            f"{entry.name}: has {len(prompts):,} prompts, and the first {first:,} were asked for. Ask for less."
        )
    return prompts[:first]


def _supervised_rows(entry: TrainingSet, kept: Sequence[Entry]) -> list[SupervisedRow]:
    without = [item.where for item in kept if item.answer is None]
    if without:
        raise DataError(
            f"{entry.name}: {len(without)} of {len(kept)} prompts have no answer ({without[0]} is the first), so there "
            "is nothing to train on gold with. Name the column of the answers with --answer-column."
        )
    return [SupervisedRow(id=item.id, problem=item.problem, answer=str(item.answer)) for item in kept]


def _check_count(entry: TrainingSet, count: int, checks: Checks) -> None:
    if entry.count not in (None, count) and not checks.any_count:
        raise DataError(
            f"{entry.name}: {count:,} rows, and the known set has {entry.count:,}. Give the whole set, or allow "
            "another count with --any-count."
        )
