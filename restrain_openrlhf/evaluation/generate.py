"""Draws the responses to benchmarks with vLLM: in shards if asked, and from where a killed evaluation stopped."""

import fcntl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from restrain_openrlhf.data.jsonl import drop_cut_line, dump, read_rows
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.evaluation.responses import Provenance, ResponseRow, load_provenance
from restrain_openrlhf.hook.offline_engine import Rollout
from restrain_openrlhf.hook.prompts import Prompt
from restrain_openrlhf.reference.artifact import provenance_path
from restrain_openrlhf.reference.run import PROMPTS_PER_CHUNK


class RolloutsOf(Protocol):
    """Anything that gives n rollouts per prompt; `RolloutEngine` does."""

    def rollouts(self, prompts: Sequence[Prompt]) -> list[list[Rollout]]: ...


@dataclass(frozen=True)
class Task:
    """One benchmark's prompts (of one shard) and the file their responses go to."""

    prompts: tuple[Prompt, ...]
    provenance: Provenance
    path: Path


def generate(task: Task, engine: Callable[[], RolloutsOf], on_progress: Callable[[int], None]) -> None:
    """Write a row for each prompt that the file lacks; `engine` is called only if one is needed.

    Raises RunError where the file holds another evaluation's responses, or another process is writing it.
    """
    task.path.parent.mkdir(parents=True, exist_ok=True)
    with _alone(task.path) as file:
        done = _done(task)
        on_progress(len(done))
        for chunk in _chunks(task.prompts, done):
            groups = engine().rollouts(chunk)
            file.write("".join(dump(_row(*pair).model_dump()) for pair in zip(chunk, groups, strict=True)))
            file.flush()
            on_progress(len(chunk))


@contextmanager
def _alone(path: Path) -> Iterator[IO[str]]:
    with path.open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"{path}: another process is writing it. Wait for it, or give this one its own --shard."
            ) from None
        yield file


def _done(task: Task) -> set[str]:
    """Ids whose responses are there already. The provenance is written before the first of them."""
    provenance = provenance_path(task.path)
    if not task.path.stat().st_size:
        provenance.write_text(task.provenance.model_dump_json(indent=2) + "\n", encoding="utf-8")
        return set()
    difference = load_provenance(task.path).difference(task.provenance)
    if difference:
        raise RunError(
            f"{task.path} holds another evaluation ({difference}). Choose another --out, or remove the file."
        )
    drop_cut_line(task.path)
    return {row.id for row in read_rows(task.path, ResponseRow)}


def _chunks(prompts: Sequence[Prompt], done: set[str]) -> Iterator[list[Prompt]]:
    """Always the same pieces, so that an evaluation that was stopped batches as one that was not."""
    for start in range(0, len(prompts), PROMPTS_PER_CHUNK):
        missing = [prompt for prompt in prompts[start : start + PROMPTS_PER_CHUNK] if str(prompt.id) not in done]
        if missing:
            yield missing


def _row(prompt: Prompt, group: Sequence[Rollout]) -> ResponseRow:
    return ResponseRow(
        id=str(prompt.id),
        problem=prompt.problem,
        prompt=prompt.text,
        responses=tuple(rollout.text for rollout in group),
        tokens=tuple(rollout.tokens for rollout in group),
        truncated=tuple(rollout.truncated for rollout in group),
    )
