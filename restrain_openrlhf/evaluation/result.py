"""The numbers made of grades: of an evaluated benchmark's stored responses, or of a reference artifact's answers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from restrain_openrlhf.answers import EXTRACTOR_VERSION
from restrain_openrlhf.data.jsonl import read_rows, write_rows
from restrain_openrlhf.errors import DataError, RunError
from restrain_openrlhf.evaluation.estimators import (
    interval_over_problems,
    interval_over_samples,
    maj_at_k,
    mean_pass_at_k,
    powers_up_to,
)
from restrain_openrlhf.evaluation.grade import GRADER_VERSION, GradeRow, grade_answers, grade_problem
from restrain_openrlhf.evaluation.math_verify_process import MathVerify
from restrain_openrlhf.evaluation.problems import Problem
from restrain_openrlhf.evaluation.responses import BenchmarkFolder, EvaluationProvenance, ResponseRow
from restrain_openrlhf.evaluation.second_grader import Asked, SecondGrading, grade_again
from restrain_openrlhf.reference import ReferenceRow


class Scores(BaseModel):
    """Means over problems, in [0, 1]. Lengths in tokens, shares of responses.

    `low` and `high` bound pass@1 at 95 % over problems: other problems of the kind, and other responses.
    `samples_low` and `samples_high`: over samples, other responses to these problems; None for one response a problem,
    and in results of before there was such an interval (`restrain regrade` adds it).
    """

    model_config = ConfigDict(frozen=True)

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


class Result(BaseModel):
    """`result.json`: what was evaluated, how, and what came out; `second` where another grader was asked, too."""

    model_config = ConfigDict(frozen=True)

    provenance: EvaluationProvenance
    scores: Scores
    extractor_version: str
    grader_version: str
    second: SecondGrading | None = None


@dataclass(frozen=True)
class Accuracy:
    """Scores of votes, `k` rollouts a problem. Means over problems, in [0, 1]; bounds of pass@1 as in `Scores`."""

    pass_at_1: float
    low: float
    high: float
    maj_at_k: float
    k: int
    problems: int
    missing_share: float
    samples_low: float | None = None
    samples_high: float | None = None


@dataclass(frozen=True)
class Changed:
    """How many of the stored grades another grading changed, of how many."""

    grades: int
    of: int


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


def accuracy(rows: Sequence[ReferenceRow], gold: Mapping[str, str]) -> Accuracy:
    """Accuracy of `rows` (k sampled answers per problem); `gold` maps a problem's hash to its answer.

    Raises DataError for a problem without gold.
    """
    found, k = scores([_graded(row, gold) for row in rows]), rows[0].n
    return Accuracy(
        pass_at_1=found.pass_at_1,
        low=found.low,
        high=found.high,
        maj_at_k=found.maj_at_k[k],
        k=k,
        problems=len(rows),
        missing_share=found.missing_share,
        samples_low=found.samples_low,
        samples_high=found.samples_high,
    )


def _graded(row: ReferenceRow, gold: Mapping[str, str]) -> GradeRow:
    if row.problem_hash not in gold:
        raise DataError(f"The problem of row {row.id!r} has no gold answer. Give the file the rollouts were made from.")
    return grade_answers(str(row.id), row.answers, gold[row.problem_hash])


def grade_folder(folder: BenchmarkFolder, second: MathVerify | None = None) -> tuple[Result, Changed]:
    """Grade all responses of a finished benchmark, and write grades and result; with `second` its differences, too.

    Raises RunError where responses are missing.
    """
    provenance, responses = folder.all_responses()
    gold = {problem.id: problem.answer for problem in read_rows(folder.problems, Problem)}
    grades = [grade_problem(row.id, row.responses, gold[row.id]) for row in responses]
    folder.differences.unlink(missing_ok=True)
    before = {row.id: row for row in read_rows(folder.grades, GradeRow)} if folder.grades.exists() else {}
    pairs = [
        pair for row in grades if row.id in before for pair in zip(row.correct, before[row.id].correct, strict=True)
    ]
    result = Result(
        provenance=provenance,
        scores=scores(grades, responses),
        extractor_version=EXTRACTOR_VERSION,
        grader_version=GRADER_VERSION,
        second=_graded_again(folder, responses, grades, second) if second else None,
    )
    write_rows(folder.grades, grades)
    folder.result.write_text(result.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return result, Changed(sum(now != then for now, then in pairs), len(pairs))


def _graded_again(
    folder: BenchmarkFolder, responses: Sequence[ResponseRow], grades: Sequence[GradeRow], grader: MathVerify
) -> SecondGrading:
    asked = [Asked(row.problem, row.responses, graded) for row, graded in zip(responses, grades, strict=True)]
    grading, found = grade_again(asked, grader)
    write_rows(folder.differences, found)
    return grading


def benchmark_folders(run: Path) -> list[BenchmarkFolder]:
    """The benchmarks of an evaluation. Raises RunError where `run` is no folder of one."""
    found = [BenchmarkFolder(path.parent) for path in sorted(run.glob("*/problems.jsonl"))]
    if not found:
        raise RunError(f"{run}: holds no evaluation. Give the --out of `restrain eval`.")
    return found


def load_results(run: Path) -> list[Result]:
    """Every result of an evaluation. Raises RunError for one that is not finished or is damaged."""
    return [load_result(folder) for folder in benchmark_folders(run)]


def load_result(folder: BenchmarkFolder) -> Result:
    """One benchmark's. Raises RunError where it is not finished or is damaged."""
    try:
        return Result.model_validate(json.loads(folder.result.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise RunError(
            f"{folder.path}: has no result yet. Finish all shards, then run `restrain regrade {folder.path.parent}`."
        ) from None
    except (json.JSONDecodeError, ValidationError):
        raise RunError(
            f"{folder.result}: is damaged. Make it again with `restrain regrade {folder.path.parent}`."
        ) from None
