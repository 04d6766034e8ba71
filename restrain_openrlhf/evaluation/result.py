"""One evaluated benchmark: its files, how its responses were drawn, and the numbers made of their grades."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, parse_kind
from restrain_openrlhf.answers.gold import GRADER_VERSION
from restrain_openrlhf.data.identity import Provenance
from restrain_openrlhf.data.jsonl import read_rows, write_rows
from restrain_openrlhf.data.problems import Problem
from restrain_openrlhf.errors import DataError, RunError
from restrain_openrlhf.evaluation.estimators import (
    interval_over_problems,
    interval_over_samples,
    maj_at_k,
    mean_pass_at_k,
    powers_up_to,
)
from restrain_openrlhf.evaluation.grade import GradeRow, ResponseRow, grade_answers, grade_vote
from restrain_openrlhf.evaluation.math_verify import MathVerify, SecondGrading, grade_again
from restrain_openrlhf.reference import ReferenceRow
from restrain_openrlhf.reference.sampling_pass import Shard, each_of_parts, shared_provenance


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
    # The kind of answer with its settings; earlier versions, which knew mathematics alone, wrote none.
    answers: dict[str, Any] = Field(default_factory=lambda: MATHEMATICS.model_dump(mode="json"))
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

    @property
    def kind(self) -> AnswerKind:
        """The kind of answer. Raises ConfigError where no such kind is installed."""
        return parse_kind(self.answers)


class Scores(BaseModel, frozen=True):
    """Means over problems, in [0, 1]. Lengths in tokens, shares of responses.

    `low` and `high` bound pass@1 at 95 % over problems: other problems of the kind, and other responses.
    `samples_low` and `samples_high`: over samples, other responses to these problems; None for one response a problem,
    and in results of before there was such an interval (`restrain regrade` adds it).
    """

    pass_at_1: float
    low: float
    high: float
    samples_low: float | None = None
    samples_high: float | None = None
    pass_at_k: dict[int, float]
    maj_at_k: dict[int, float]
    missing_share: float
    mean_tokens: float | None = None
    truncated_share: float | None = None


class Result(BaseModel, frozen=True):
    """`result.json`: what was evaluated, how, and what came out; `second` where another grader was asked, too."""

    provenance: EvaluationProvenance
    scores: Scores
    extractor_version: str
    grader_version: str
    second: SecondGrading | None = None


class BenchmarkFolder:
    """One benchmark's folder inside an evaluation's `--out`.

    `problems` hold their gold, so that responses can be graded again without the data set; `grades` answer and verdict
    of every response; `result` the numbers; `differences` what a second grader judges otherwise, if one was asked.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems, self.grades = path / "problems.jsonl", path / "grades.jsonl"
        self.result, self.differences = path / "result.json", path / "differences.jsonl"

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
        provenance = shared_provenance(parts, EvaluationProvenance)
        rows = {row.key: row for row in each_of_parts(parts, ResponseRow)}
        ids = [problem.id for problem in read_rows(self.problems, Problem)]
        missing = [each for each in ids if each not in rows]
        if missing:
            raise RunError(
                f"{self.path}: {len(missing)} of {len(ids)} problems have no responses yet, {missing[0]!r} first. "
                "Run the same `restrain eval` again, and every shard of it."
            )
        return provenance, [rows[each] for each in ids]


def scores(grades: Sequence[GradeRow], responses: Sequence[ResponseRow] = ()) -> Scores:
    """The numbers of graded responses; lengths where `responses` are given. Every problem has n responses."""
    n = len(grades[0].correct)
    if any(len(row.correct) != n for row in grades) or not n:
        raise DataError("The problems have different numbers of responses, or none. Finish the evaluation first.")
    right = [sum(row.correct) for row in grades]
    low, high = interval_over_problems([count / n for count in right])
    samples_low, samples_high = interval_over_samples(right, n) or (None, None)
    return Scores(
        pass_at_1=mean_pass_at_k(grades, 1),
        low=low,
        high=high,
        samples_low=samples_low,
        samples_high=samples_high,
        pass_at_k={k: mean_pass_at_k(grades, k) for k in powers_up_to(n)},
        maj_at_k={k: maj_at_k(grades, k) for k in powers_up_to(n)},
        missing_share=float(np.mean([answer is None for row in grades for answer in row.answers])),
        mean_tokens=float(np.mean([row.tokens for row in responses])) if responses else None,
        truncated_share=float(np.mean([row.truncated for row in responses])) if responses else None,
    )


def accuracy(rows: Sequence[ReferenceRow], gold: Mapping[str, str], kind: AnswerKind = MATHEMATICS) -> Scores:
    """The numbers of a reference artifact's answers, of this `kind`; `gold` maps a problem's hash to its answer.

    Raises DataError for a problem without gold.
    """
    missing = next((row.id for row in rows if row.problem_hash not in gold), None)
    if missing is not None:
        raise DataError(
            f"The problem of row {missing!r} has no gold answer. Give the file the rollouts were made from."
        )
    return scores([grade_vote(row, gold[row.problem_hash], kind) for row in rows])


def grade_folder(folder: BenchmarkFolder, second: MathVerify | None = None) -> tuple[Result, list[bool]]:
    """Grade all responses of a finished benchmark, and write grades and result; with `second` its differences, too.

    Returns the result, and of every response that was graded before whether its grade changed.
    Raises RunError where responses are missing.
    """
    provenance, responses = folder.all_responses()
    kind, problems = provenance.kind, {problem.id: problem for problem in read_rows(folder.problems, Problem)}
    grades = [_graded(row, problems[row.id], kind) for row in responses]
    folder.differences.unlink(missing_ok=True)
    before = {row.id: row for row in read_rows(folder.grades, GradeRow)} if folder.grades.exists() else {}
    changed = [
        now != then
        for row in grades
        if row.id in before
        for now, then in zip(row.correct, before[row.id].correct, strict=True)
    ]
    found = None
    if second:
        found, differing = grade_again(responses, grades, second)
        write_rows(folder.differences, differing)
    result = Result(
        provenance=provenance,
        scores=scores(grades, responses),
        extractor_version=kind.whole_version,
        grader_version=GRADER_VERSION,
        second=found,
    )
    write_rows(folder.grades, grades)
    folder.result.write_text(result.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return result, changed


def _graded(row: ResponseRow, problem: Problem, kind: AnswerKind) -> GradeRow:
    own = kind.row(problem.problem, problem.row)
    answers = [kind.extract(response, own) for response in row.responses]
    return grade_answers(row.id, answers, problem.answer, kind, own)


def benchmark_folders(run: Path) -> list[BenchmarkFolder]:
    """The benchmarks of an evaluation. Raises RunError where `run` is no folder of one."""
    found = [BenchmarkFolder(path.parent) for path in sorted(run.glob("*/problems.jsonl"))]
    if not found:
        raise RunError(f"{run}: holds no evaluation. Give the --out of `restrain eval`.")
    return found


def load_results(run: Path) -> list[Result]:
    """Every result of an evaluation. Raises RunError for one that is not finished or is damaged."""
    return [_load(folder.result, f"`restrain regrade {run}`") for folder in benchmark_folders(run)]


def _load(file: Path, again: str) -> Result:
    try:
        return Result.model_validate_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{file.parent}: has no result yet. Finish all shards, then run {again}.") from None
    except ValidationError:
        raise RunError(f"{file}: is damaged. Make it again with {again}.") from None
