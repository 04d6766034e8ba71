"""Artifacts made of artifacts, without sampling again: shards joined, and subsets of rollouts or prompts."""

from collections.abc import Sequence
from pathlib import Path

from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.errors import DataError, ReferencePassError
from restrain_openrlhf.hook.prompts import set_hash
from restrain_openrlhf.reference.artifact import Reference, ReferenceProvenance, ReferenceRow
from restrain_openrlhf.sampling_pass import join_parts


def merge(shards: Sequence[Path], out: Path) -> int:
    """Join shards into one artifact; returns the number of rows. A single shard may be `out` itself.

    Raises ReferencePassError where shards differ in provenance, DataError where prompts are missing or overlap.
    """
    provenance, rows = join_parts(shards, ReferenceProvenance, ReferenceRow)
    if len(rows) != provenance.prompt_count:
        raise DataError(
            f"The {len(shards)} shards hold {len(rows)} of {provenance.prompt_count} prompts. Finish or add the "
            "missing shards."
        )
    write_rows(out, rows.values())
    provenance.write(out)
    return len(rows)


def subset(reference: Reference, out: Path, n: int | None = None, problems: Sequence[str] | None = None) -> int:
    """Write the vote of the first `n` rollouts on `problems` (bare texts; default: all of both); returns the rows.

    Raises ReferencePassError for more rollouts than were sampled, a problem without a row, or an `out` that is the
    artifact itself.
    """
    _refuse(reference, out, n)
    rows = [row.first(n or row.n) for row in _rows_of(reference, problems)]
    prompts = set_hash(bytes.fromhex(row.prompt_hash) for row in rows)
    provenance = reference.provenance.model_copy(
        update={"n": n or reference.provenance.n, "prompt_count": len(rows), "prompt_set_hash": prompts}
    )
    write_rows(out, rows)
    provenance.write(out)
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
    if out.resolve() == reference.path.resolve():
        raise ReferencePassError(f"--out {out}: is the artifact that is read. Name another file.")
