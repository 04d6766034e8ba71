"""Writes and reads kept rollouts: `RUN/rollouts/step-000012.parquet`, a file per step with a row per rollout."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, fields
from itertools import groupby
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from restrain_openrlhf.data.jsonl import arrow
from restrain_openrlhf.data.outputs import replacing
from restrain_openrlhf.errors import DataError

FOLDER = "rollouts"
FILE = re.compile(r"step-(\d+)\.parquet")


@dataclass(frozen=True)
class KeptRollout:
    """One rollout of a group; `rollout` is its place in the group, in which trained rollouts come first.

    `label` numbers the group's answer classes by first appearance, `class_votes` is the size of the rollout's class,
    and `label_weight` is w_j of its class (eq. 3 of the paper). `key` is equal for equal answers of one prompt at all
    steps. These and `answer` are None if the answer is missing. `advantage_pos` and `advantage_neg` are A⁺ and A⁻,
    u_x included, and None if the rollout only voted. `log_prob_gap` is the mean of |log p_vLLM − log π| over its
    tokens and `entropy` is H_i, both in nats, and None if they were not measured.
    """

    rollout: int
    response: str
    finished: bool
    answer: str | None
    label: int | None
    class_votes: int | None
    label_weight: float | None
    trained: bool
    key: str | None = None
    advantage_pos: float | None = None
    advantage_neg: float | None = None
    log_prob_gap: float | None = None
    entropy: float | None = None


@dataclass(frozen=True)
class KeptGroup:
    """One prompt's group in one step; `group` is its place among all groups of the step, counted from 0.

    `prompt_id` is the prompt's `text_hash` (data/identity.py). `voters` counts the rollouts that voted,
    `majority_count` is M, `prompt_weight` u_x. `penalized` is the share of trained rollouts that the method penalises.
    """

    step: int
    group: int
    prompt_id: str
    prompt: str
    majority_count: int
    voters: int
    prompt_weight: float
    penalized: float
    rollouts: tuple[KeptRollout, ...]


GROUP_COLUMNS = tuple(field.name for field in fields(KeptGroup) if field.name != "rollouts")
# A rollout's fields and their columns. They differ for `class`, which cannot be the name of a Python field.
ROLLOUT_COLUMNS = {field.name: {"label": "class"}.get(field.name, field.name) for field in fields(KeptRollout)}


def schema() -> Any:
    """The columns of a file of kept rollouts in Arrow's types (docs/operations/running.md), derived from the fields."""
    pa = arrow()
    types = {int: pa.int32(), str: pa.string(), bool: pa.bool_(), float: pa.float64()}
    group, rollout = get_type_hints(KeptGroup), get_type_hints(KeptRollout)
    hints = {name: group[name] for name in GROUP_COLUMNS} | {
        ROLLOUT_COLUMNS[name]: hint for name, hint in rollout.items()
    }
    kinds = {name: get_args(hint) or (hint,) for name, hint in hints.items()}
    return pa.schema([pa.field(name, types[kind[0]], nullable=NoneType in kind) for name, kind in kinds.items()])


def step_file(run: Path, step: int) -> Path:
    return run / FOLDER / f"step-{step:06d}.parquet"


def as_parquet(groups: Sequence[KeptGroup]) -> bytes:
    rows = [
        {name: getattr(group, name) for name in GROUP_COLUMNS}
        | {column: getattr(rollout, name) for name, column in ROLLOUT_COLUMNS.items()}
        for group in groups
        for rollout in group.rollouts
    ]
    sink = arrow().BufferOutputStream()
    arrow().parquet.write_table(arrow().Table.from_pylist(rows, schema=schema()), sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def write_step(run: Path, step: int, content: bytes) -> Path:
    """Write a step's file in one piece, so that no reader sees half of it. Raises OSError if the disk is full."""
    path = step_file(run, step)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, "wb") as file:
        file.write(content)
    return path


def kept_files(run: Path) -> dict[int, Path]:
    """The files of a run by step, ascending; empty if nothing was kept."""
    found = ((FILE.fullmatch(path.name), path) for path in (run / FOLDER).glob("step-*.parquet"))
    return dict(sorted((int(match[1]), path) for match, path in found if match))


def drop_from(run: Path, step: int) -> None:
    """Remove the files of this and later steps, and half-written files that a kill has left."""
    later = [path for number, path in kept_files(run).items() if number >= step]
    for path in (*later, *(run / FOLDER).glob("step-*.partial")):
        path.unlink()


def read_kept(run: Path) -> Iterator[KeptGroup]:
    """The kept groups of a run's folder, step by step, with one file in memory at a time.

    Raises DataError if nothing was kept, and for a file that is damaged or does not hold kept rollouts.
    """
    files = kept_files(run)
    if not files:
        raise DataError(
            f"{run}: has no kept rollouts ({FOLDER}/step-*.parquet). Check that it is a run's folder. A run keeps them "
            "with `rollouts: {keep: 8}` in its configuration, or `--set rollouts.keep=8`; a run that kept none before "
            "may be continued with it."
        )
    for path in files.values():
        yield from read_file(path)


def kept_prompts(run: Path, skip_damaged: bool = False) -> frozenset[str]:
    """The prompts of all steps so far, without reading their rollouts.

    Raises DataError if a file is damaged, unless `skip_damaged`.
    """
    prompts = set[str]()
    for path in kept_files(run).values():
        with suppress(DataError) if skip_damaged else nullcontext():
            prompts.update(_table(path, ["prompt"])["prompt"].unique().to_pylist())
    return frozenset(prompts)


def read_file(path: Path) -> list[KeptGroup]:
    """The groups of a step's file. Raises DataError if it is damaged or does not hold kept rollouts."""
    table = _table(path)
    if not table.schema.equals(schema()):
        raise DataError(
            f"{path}: does not have the columns of kept rollouts, but {', '.join(table.schema.names)}, or columns of "
            "other types. Give the folder of a run of this version."
        )
    return [_group(list(rows)) for _, rows in groupby(table.to_pylist(), key=lambda row: row["group"])]


def _table(path: Path, columns: Sequence[str] | None = None) -> Any:
    try:
        return arrow().parquet.read_table(path, columns=columns)
    except (OSError, arrow().ArrowException) as error:
        raise DataError(
            f"{path}: is not a complete Parquet file ({error}). Remove it; the other steps can be read."
        ) from None


def _group(rows: Sequence[Mapping[str, Any]]) -> KeptGroup:
    rollouts = (KeptRollout(**{name: row[column] for name, column in ROLLOUT_COLUMNS.items()}) for row in rows)
    return KeptGroup(**{name: rows[0][name] for name in GROUP_COLUMNS}, rollouts=tuple(rollouts))
