"""The files of one evaluated benchmark: problems, every response, how they were drawn, grades and result."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import ConfigDict, Field

from restrain_openrlhf.data.jsonl import read_rows, write_rows
from restrain_openrlhf.data.provenance import Provenance
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.evaluation.problems import Problem
from restrain_openrlhf.hook.offline_engine import Rollout
from restrain_openrlhf.hook.prompts import Prompt
from restrain_openrlhf.sampling_pass import SampledRow, Shard, join_parts


class ResponseRow(SampledRow):
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

    @classmethod
    def of(cls, prompt: Prompt, rollouts: Sequence[Rollout]) -> Self:
        """All that was drawn for one prompt."""
        return cls(
            id=str(prompt.id),
            problem=prompt.problem,
            prompt=prompt.text,
            responses=tuple(rollout.text for rollout in rollouts),
            tokens=tuple(rollout.tokens for rollout in rollouts),
            truncated=tuple(rollout.truncated for rollout in rollouts),
        )

    @classmethod
    def key_of(cls, prompt: Prompt) -> str:
        """The problem's id."""
        return str(prompt.id)

    @property
    def key(self) -> str:
        """`id`."""
        return self.id


class EvaluationProvenance(Provenance):
    """What responses were drawn with. Where files lie and how a run is labelled make no difference."""

    about = "Responses"
    remedy = "Remove it and its responses, and run again."
    error = RunError
    may_differ = frozenset({"source", "model", "labels"})

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
    labels: dict[str, str] = Field(default_factory=dict)
    shots: int = 0


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

    @property
    def differences(self) -> Path:
        """Responses that a second grader judges otherwise; there only where one was asked for."""
        return self.path / "differences.jsonl"

    def responses(self, shard: Shard) -> Path:
        """`responses.jsonl`, or this shard's part of it."""
        return shard.path(self.path / "responses.jsonl")

    def keep_problems(self, problems: Sequence[Problem]) -> None:
        """Write them once; shards that start together write the same. Raises RunError where others are there."""
        if not self.problems.exists():
            write_rows(self.problems, problems)
        elif read_rows(self.problems, Problem) != list(problems):
            raise RunError(f"{self.problems} holds other problems or answers. Choose another --out.")

    def all_responses(self) -> tuple[EvaluationProvenance, list[ResponseRow]]:
        """All rows of all shards in the problems' order.

        Raises RunError where some are missing or parts are of different passes, DataError where a problem is twice.
        """
        parts = sorted(self.path.glob("responses*.jsonl"))
        if not parts:
            raise RunError(f"{self.path}: has no responses. Make them with `restrain eval`.")
        provenance, rows = join_parts(parts, EvaluationProvenance, ResponseRow)
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
