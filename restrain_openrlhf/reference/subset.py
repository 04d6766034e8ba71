"""A part of an offline pass, made from its stored answers without sampling again: fewer rollouts, or fewer prompts."""

from collections.abc import Sequence
from pathlib import Path

from restrain_openrlhf.answers import EXTRACTOR_VERSION
from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.errors import ReferencePassError
from restrain_openrlhf.hook.prompts import set_hash
from restrain_openrlhf.reference.artifact import Reference, ReferenceRow, provenance_path
from restrain_openrlhf.reference.vote import first_of


def subset(reference: Reference, out: Path, n: int | None = None, problems: Sequence[str] | None = None) -> int:
    """Write the vote of the first `n` rollouts on `problems` (bare texts; default: all of both); returns the rows.

    Raises ReferencePassError for more rollouts than were sampled, a problem without a row, another extractor's answers,
    or an `out` that is the artifact itself.
    """
    _refuse(reference, out, n)
    rows = [first_of(row, n or row.n) for row in _rows_of(reference, problems)]
    prompts = set_hash(bytes.fromhex(row.prompt_hash) for row in rows)
    provenance = reference.provenance.model_copy(
        update={"n": n or reference.provenance.n, "prompt_count": len(rows), "prompt_set_hash": prompts}
    )
    write_rows(out, rows)
    provenance_path(out).write_text(provenance.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return len(rows)


def _rows_of(reference: Reference, problems: Sequence[str] | None) -> Sequence[ReferenceRow]:
    if problems is None:
        return reference.rows
    rows = [(problem, reference.by_problem(problem)) for problem in problems]
    for problem, row in rows:
        if row is None:
            raise ReferencePassError(
                f"{reference.path} has no row for the problem {problem[:80]!r}. Sample it with `restrain reference`."
            )
    return [row for _, row in rows if row is not None]


def _refuse(reference: Reference, out: Path, n: int | None) -> None:
    made = reference.provenance
    if n is not None and n > made.n:
        raise ReferencePassError(
            f"{reference.path} has {made.n} rollouts per prompt, and {n} are asked for. Sample more with "
            "`restrain reference --n`, into another file."
        )
    if made.extractor_version != EXTRACTOR_VERSION:
        raise ReferencePassError(
            f"{reference.path} holds answers of extractor version {made.extractor_version!r}; this is version "
            f"{EXTRACTOR_VERSION!r}. Make it again with `restrain reference`."
        )
    if out.resolve() == reference.path.resolve():
        raise ReferencePassError(f"--out {out}: is the artifact that is read. Name another file.")
