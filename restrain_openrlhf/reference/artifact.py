"""The reference artifact: one row per prompt in JSON Lines, and its provenance in a file beside it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from restrain_openrlhf.data import identity
from restrain_openrlhf.data.jsonl import read_rows
from restrain_openrlhf.errors import ReferencePassError

# Prompts and problems are known by this hash throughout an artifact.
text_hash = identity.text_hash


class ReferenceRow(BaseModel):
    """The frozen model's vote on one prompt: n rollouts, `counts` in order of first appearance of the labels."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str | int | None = None
    prompt_hash: str
    problem_hash: str
    n: int
    answers: tuple[str | None, ...]
    counts: tuple[int, ...]
    majority: str | None
    majority_count: int
    majority_share: float
    missing_share: float


class Provenance(BaseModel):
    """What the pass was made with. Two artifacts may be merged only if all of it is equal."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    model_fingerprint: str
    template: str
    prompt_set_hash: str
    prompt_count: int
    n: int
    temperature: float
    top_p: float
    max_new_tokens: int
    max_len: int
    seed: int
    extractor_version: str
    restrain_version: str

    def difference(self, other: "Provenance", names: Iterable[str] | None = None) -> str | None:
        """The first of `names` (default: all) in which the two differ, with both values; None if there is none."""
        for name in names if names is not None else type(self).model_fields:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{name}: {mine!r} against {theirs!r}"
        return None


@dataclass(frozen=True)
class Reference:
    """A complete artifact, looked up by prompt (as the policy sees it) or by problem (as the data set states it)."""

    path: Path
    provenance: Provenance
    rows: tuple[ReferenceRow, ...]
    _by_prompt: Mapping[str, ReferenceRow]
    _by_problem: Mapping[str, ReferenceRow]

    def by_prompt(self, prompt: str) -> ReferenceRow | None:
        """The row of a prompt with its template applied."""
        return self._by_prompt.get(text_hash(prompt))

    def by_problem(self, problem: str) -> ReferenceRow | None:
        """The row of a problem's bare text."""
        return self._by_problem.get(text_hash(problem))


def provenance_path(artifact: Path) -> Path:
    """`ref.jsonl` has its provenance in `ref.jsonl.provenance.json`."""
    return artifact.with_name(artifact.name + ".provenance.json")


def load_provenance(artifact: Path) -> Provenance:
    """Raises ReferencePassError where it is missing or damaged."""
    path = provenance_path(artifact)
    try:
        return Provenance.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ReferencePassError(
            f"{path}: no such file. A reference artifact travels with its provenance: copy both files, or make the "
            "artifact with `restrain reference`."
        ) from None
    except ValidationError as error:
        raise ReferencePassError(
            f"{path}: {error.errors()[0]['msg']}. Make it again with `restrain reference`."
        ) from None


def load_reference(path: Path) -> Reference:
    """The whole artifact. Raises ReferencePassError if it is incomplete, DataError if a row is damaged."""
    provenance = load_provenance(path)
    rows = tuple(read_rows(path, ReferenceRow))
    if len(rows) != provenance.prompt_count:
        raise ReferencePassError(
            f"{path}: {len(rows)} of {provenance.prompt_count} prompts. Run the same `restrain reference` command "
            "again to finish it, or merge all shards with `restrain merge-reference`."
        )
    return Reference(
        path=path,
        provenance=provenance,
        rows=rows,
        _by_prompt={row.prompt_hash: row for row in rows},
        _by_problem={row.problem_hash: row for row in rows},
    )
