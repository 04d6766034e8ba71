"""Makes artifacts: sampled from what a user typed, joined from shards, or a subset of another's rollouts or prompts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf import __version__
from restrain_openrlhf.answers import EXTRACTOR_VERSION
from restrain_openrlhf.data.identity import model_fingerprint
from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.errors import DataError, ReferencePassError
from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.reference.artifact import Reference, ReferenceProvenance, ReferenceRow
from restrain_openrlhf.reference.checks import SAMPLING
from restrain_openrlhf.reference.offline_engine import RolloutEngine, Sampling, refuse_long_prompts
from restrain_openrlhf.reference.prompts import (
    Prompt,
    PromptSource,
    load_prompts,
    prompt_set_hash,
    set_hash,
    template_identity,
)
from restrain_openrlhf.reference.sampling_pass import SamplingPass, Shard, join_parts, prompts_per_chunk


@dataclass(frozen=True)
class OfflinePass:
    """One shard of one pass, checked and ready to run."""

    model: str
    sampling: Sampling
    shard: Shard
    prompts: list[Prompt]
    provenance: ReferenceProvenance
    tokenizer: object

    @classmethod
    def prepare(cls, model: str, source: PromptSource, sampling: Sampling, index: int, count: int) -> "OfflinePass":
        """Load and check everything but the engine.

        Raises ConfigError for a model that does not exist, DataError for bad prompts or ones that are too long.
        """
        fingerprint = model_fingerprint(model)
        from transformers import AutoTokenizer  # noqa: PLC0415 - costs seconds; bad input is told before

        tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=True)
        prompts = load_prompts(source, tokenizer)
        refuse_long_prompts(prompts, tokenizer, sampling)
        provenance = ReferenceProvenance(
            model=model,
            model_fingerprint=fingerprint,
            template=template_identity(source, tokenizer),
            prompt_set_hash=prompt_set_hash(prompts),
            prompt_count=len(prompts),
            extractor_version=EXTRACTOR_VERSION,
            restrain_version=__version__,
            **{name: getattr(sampling, name) for name in ("n", "max_len", "seed", *SAMPLING)},
        )
        shard = Shard(index, count)
        return cls(model, sampling, shard, shard.of(prompts), provenance, tokenizer)

    def run(self, out: Path, on_progress: Callable[[int], None]) -> Path:
        """Sample what is missing; returns the file written (`out`, or this shard's part of it)."""
        path = self.shard.path(out)
        chunk = prompts_per_chunk(self.sampling.n, detect().has_gpus)
        sampling = SamplingPass(self.prompts, self.provenance, path, ReferenceRow, chunk)
        sampling.run(lambda: RolloutEngine(self.model, self.sampling, self.tokenizer), on_progress)
        return path


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
    made = reference.provenance
    if n is not None and n > made.n:
        raise ReferencePassError(
            f"{reference.path} has {made.n} rollouts per prompt, and {n} are asked for. Sample more with "
            "`restrain reference --n`, into another file."
        )
    if out.resolve() == reference.path.resolve():
        raise ReferencePassError(f"--out {out}: is the artifact that is read. Name another file.")
    rows = [row.first(n or row.n) for row in _rows_of(reference, problems)]
    prompts = set_hash(bytes.fromhex(row.prompt_hash) for row in rows)
    provenance = made.model_copy(update={"n": n or made.n, "prompt_count": len(rows), "prompt_set_hash": prompts})
    write_rows(out, rows)
    provenance.write(out)
    return len(rows)


def _rows_of(reference: Reference, problems: Sequence[str] | None) -> Sequence[ReferenceRow]:
    if problems is None:
        return reference.rows
    rows = []
    for problem in problems:
        row = reference.by_problem(problem)
        if row is None:
            raise ReferencePassError(
                f"{reference.path} has no row for the problem {problem[:80]!r}. Sample it with `restrain reference`."
            )
        rows.append(row)
    return rows
