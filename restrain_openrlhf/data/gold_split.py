"""The gold split: prompts in one file, gold answers in a sidecar that is joined by the prompt's hash."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.data.outputs import output_file


class PromptOnly(BaseModel):
    """A row of a training file. It has no field for an answer, so none can be written to it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    problem: str


class SupervisedRow(BaseModel):
    """A problem with its answer: for evaluation, and for gold GRPO, which alone trains on answers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    problem: str
    answer: str


class GoldAnswer(BaseModel):
    """A row of the sidecar; `prompt_hash` is the SHA-256 of the bare problem."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt_hash: str
    answer: str


def sidecar_path(prompts: Path) -> Path:
    """`train.jsonl` has its gold in `train.gold.jsonl`."""
    return prompts.with_name(f"{prompts.stem}.gold{prompts.suffix}")


def write_separated(out: Path, prompts: Sequence[PromptOnly], gold: Mapping[str, str]) -> Path | None:
    """Write the prompts to `out`, and `gold` (answers by prompt hash) beside it; returns the sidecar's path.

    Without any gold there is no sidecar, and one that an earlier call left is removed.
    """
    sidecar = output_file(sidecar_path(out))
    if gold:
        write_rows(sidecar, [GoldAnswer(prompt_hash=key, answer=answer) for key, answer in gold.items()])
    else:
        sidecar.unlink(missing_ok=True)
    write_rows(out, prompts)
    return sidecar if gold else None
