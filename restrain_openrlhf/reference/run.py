"""The offline pass: samples every prompt once, in shards if asked, and goes on where a killed pass stopped."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from restrain_openrlhf.data.jsonl import drop_cut_line, dump, read_rows, write_rows
from restrain_openrlhf.errors import DataError, ReferencePassError
from restrain_openrlhf.hook.prompts import Prompt
from restrain_openrlhf.reference.artifact import (
    Provenance,
    ReferenceRow,
    load_provenance,
    provenance_path,
    text_hash,
)
from restrain_openrlhf.reference.vote import reference_row

PROMPTS_PER_CHUNK = 64


class AnswersOf(Protocol):
    """Anything that gives n answers per prompt; `RolloutEngine` does."""

    def answers(self, prompts: Sequence[Prompt]) -> list[list[str | None]]: ...


@dataclass(frozen=True)
class Shard:
    """Part `index` of `count`: every count-th prompt, so that shards are alike in difficulty."""

    index: int
    count: int

    def of(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """This shard's prompts, in file order."""
        return list(prompts[self.index :: self.count])

    def path(self, out: Path) -> Path:
        """`ref.jsonl` is written as `ref.shard-0-of-4.jsonl`; a single shard is the artifact itself."""
        return out if self.count == 1 else out.with_name(f"{out.stem}.shard-{self.index}-of-{self.count}{out.suffix}")


def run_pass(
    prompts: Sequence[Prompt],
    provenance: Provenance,
    path: Path,
    engine: Callable[[], AnswersOf],
    on_progress: Callable[[int], None] = lambda _count: None,
) -> None:
    """Write a row for each of `prompts` that `path` lacks, chunk by chunk; `engine` is started only if one is needed.

    Raises ReferencePassError when `path` holds rows of another pass. Rows already written are never lost.
    """
    missing = _without_done(prompts, _rows_so_far(path, provenance))
    on_progress(len(prompts) - len(missing))
    if not missing and path.exists():
        return
    provenance_path(path).write_text(provenance.model_dump_json(indent=2) + "\n", encoding="utf-8")
    # The shard of a small set may have no prompts; it is a part of the whole all the same.
    path.touch()
    if not missing:
        return
    running = engine()
    with path.open("a", encoding="utf-8") as file:
        for chunk in _chunks(missing):
            for prompt, answers in zip(chunk, running.answers(chunk), strict=True):
                file.write(dump(reference_row(prompt, answers).model_dump(mode="json")))
            file.flush()
            on_progress(len(chunk))


def _chunks(prompts: Sequence[Prompt]) -> Iterator[Sequence[Prompt]]:
    for start in range(0, len(prompts), PROMPTS_PER_CHUNK):
        yield prompts[start : start + PROMPTS_PER_CHUNK]


def _without_done(prompts: Sequence[Prompt], rows: Sequence[ReferenceRow]) -> list[Prompt]:
    done = {row.prompt_hash for row in rows}
    return [prompt for prompt in prompts if text_hash(prompt.text) not in done]


def _rows_so_far(path: Path, provenance: Provenance) -> list[ReferenceRow]:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        return []
    difference = load_provenance(path).difference(provenance)
    if difference:
        raise ReferencePassError(
            f"{path} holds another pass ({difference}). Choose another --out, or remove the file to start again."
        )
    drop_cut_line(path)
    return read_rows(path, ReferenceRow)


def merge(shards: Sequence[Path], out: Path) -> int:
    """Join shards into one artifact; returns the number of rows.

    Raises ReferencePassError where shards differ in provenance, DataError where prompts are missing or overlap.
    """
    provenance = load_provenance(shards[0])
    rows: dict[str, ReferenceRow] = {}
    for shard in shards:
        difference = load_provenance(shard).difference(provenance)
        if difference:
            raise ReferencePassError(f"{shard} and {shards[0]} are not of one pass ({difference}).")
        for row in read_rows(shard, ReferenceRow):
            if row.prompt_hash in rows:
                raise DataError(f"{shard}: the prompt of row {row.id!r} is in another shard too. Give each shard once.")
            rows[row.prompt_hash] = row
    if len(rows) != provenance.prompt_count:
        raise DataError(
            f"The {len(shards)} shards hold {len(rows)} of {provenance.prompt_count} prompts. Finish or add the "
            "missing shards."
        )
    write_rows(out, rows.values())
    provenance_path(out).write_text(provenance.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return len(rows)
