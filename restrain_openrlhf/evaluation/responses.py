"""The files of one evaluated benchmark: problems, every response, how they were drawn, grades and result."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from restrain_openrlhf.data.jsonl import read_rows, write_rows
from restrain_openrlhf.errors import DataError, RunError
from restrain_openrlhf.evaluation.problems import Problem
from restrain_openrlhf.reference.artifact import provenance_path
from restrain_openrlhf.reference.run import Shard


class ResponseRow(BaseModel):
    """One problem's n responses; `tokens` their lengths, `truncated` whether each ran into the length limit.

    Rows of `restrain score` and `restrain analyze` may hold the same keys. Gold is not among them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    problem: str
    prompt: str
    responses: tuple[str, ...]
    tokens: tuple[int, ...]
    truncated: tuple[bool, ...]


class Provenance(BaseModel):
    """What responses were drawn with. Files may be joined, and a pass may go on, only if all of it is equal."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    benchmark: str
    title: str
    source: str
    problems_digest: str
    problems: int
    model: str
    model_fingerprint: str
    template: str
    template_digest: str
    protocol: str
    n: int
    temperature: float
    top_p: float
    max_new_tokens: int
    context: int
    seed: int
    labels: dict[str, str] = {}

    def difference(self, other: "Provenance") -> str | None:
        """The first thing in which the two differ, with both values; None if there is none.

        Where files lie and how a run is labelled make no difference.
        """
        for name in type(self).model_fields:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs and name not in ("source", "model", "labels"):
                return f"{name}: {mine!r} against {theirs!r}"
        return None


@dataclass(frozen=True)
class BenchmarkFolder:
    """One benchmark's folder inside an evaluation's `--out`."""

    path: Path

    @property
    def problems(self) -> Path:
        """Problems with their gold, so that responses can be graded again without the data set."""
        return self.path / "problems.jsonl"

    @property
    def grades(self) -> Path:
        """Answer and verdict of every response."""
        return self.path / "grades.jsonl"

    @property
    def result(self) -> Path:
        """The numbers."""
        return self.path / "result.json"

    def responses(self, shard: Shard) -> Path:
        """`responses.jsonl`, or this shard's part of it."""
        return shard.path(self.path / "responses.jsonl")

    def keep_problems(self, problems: Sequence[Problem]) -> None:
        """Write them once; shards that start together write the same. Raises RunError where others are there."""
        if not self.problems.exists():
            write_rows(self.problems, problems)
        elif read_rows(self.problems, Problem) != list(problems):
            raise RunError(f"{self.problems} holds other problems or answers. Choose another --out.")

    def all_responses(self) -> tuple[Provenance, list[ResponseRow]]:
        """All rows of all shards in the problems' order.

        Raises RunError where some are missing or parts are of different passes, DataError where a problem is twice.
        """
        parts = sorted(self.path.glob("responses*.jsonl"))
        if not parts:
            raise RunError(f"{self.path}: has no responses. Make them with `restrain eval`.")
        provenance = load_provenance(parts[0])
        rows: dict[str, ResponseRow] = {}
        for part in parts:
            difference = load_provenance(part).difference(provenance)
            if difference:
                raise RunError(f"{part} and {parts[0]} are not of one evaluation ({difference}). Remove one of them.")
            for row in read_rows(part, ResponseRow):
                if row.id in rows:
                    raise DataError(f"{part}: the problem {row.id!r} is in another part too. Remove one of the two.")
                rows[row.id] = row
        return provenance, self._in_order(rows)

    def _in_order(self, rows: dict[str, ResponseRow]) -> list[ResponseRow]:
        problems = read_rows(self.problems, Problem)
        missing = [problem.id for problem in problems if problem.id not in rows]
        if missing:
            raise RunError(
                f"{self.path}: {len(missing)} of {len(problems)} problems have no responses yet, {missing[0]!r} first. "
                "Run the same `restrain eval` again, and every shard of it."
            )
        return [rows[problem.id] for problem in problems]


def load_provenance(responses: Path) -> Provenance:
    """Raises RunError where it is missing or damaged."""
    path = provenance_path(responses)
    try:
        return Provenance.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{path}: no such file. Responses travel with their provenance: copy both files.") from None
    except ValidationError as error:
        raise RunError(f"{path}: {error.errors()[0]['msg']}. Remove it and its responses, and run again.") from None
