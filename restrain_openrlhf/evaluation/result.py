"""One evaluated benchmark: its files, how its responses were drawn, their grades, and the resulting numbers."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from pydantic import BaseModel, ValidationError

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind
from restrain_openrlhf.answers.kind import differing
from restrain_openrlhf.answers.kinds.mathematics import GRADER_VERSION
from restrain_openrlhf.data.identity import Provenance
from restrain_openrlhf.data.jsonl import each_row, read_rows, write_rows
from restrain_openrlhf.data.outputs import write_whole
from restrain_openrlhf.data.problems import Problem
from restrain_openrlhf.errors import DataError, RunError
from restrain_openrlhf.evaluation import grade
from restrain_openrlhf.evaluation.grade import GradeRow, ResponseRow, grade_answers, grade_vote
from restrain_openrlhf.reference import ReferenceRow
from restrain_openrlhf.reference.sampling_pass import RowsByKey, Shard, shared_provenance


class EvaluationProvenance(Provenance):
    """How responses were drawn. The places of files do not matter."""

    about = "Responses"
    remedy = "Remove it and its responses, and run again."
    error = RunError
    may_differ = frozenset({"source", "model"})

    benchmark: str
    title: str
    source: str
    problems_digest: str
    problems: int
    template_digest: str
    protocol: str
    context: int


class Scores(BaseModel, frozen=True):
    """Means over problems in [0, 1], lengths in tokens, and shares of responses.

    `maj_at_n` is the share of problems whose majority of all n responses is right.
    `low` and `high` are 95 % bounds of pass@1 for other problems of this kind with other responses.
    """

    pass_at_1: float
    low: float
    high: float
    pass_at_k: dict[int, float]
    maj_at_n: float
    missing_share: float
    mean_tokens: float | None = None
    truncated_share: float | None = None


class Result(BaseModel, frozen=True):
    """`result.json`: what was evaluated, how, and the numbers."""

    provenance: EvaluationProvenance
    scores: Scores
    extractor_version: str
    grader_version: str


class BenchmarkFolder:
    """The folder of one benchmark in an evaluation's `--out`.

    `problems` is a file with gold, so that responses can be graded again without the data set. `grades` has the answer
    and the grade of every response, and `result` the numbers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems, self.grades, self.result = (
            path / name for name in ("problems.jsonl", "grades.jsonl", "result.json")
        )

    def responses(self, shard: Shard) -> Path:
        """The file `responses.jsonl`, or this shard's part of it."""
        return shard.path(self.path / "responses.jsonl")

    def keep_problems(self, problems: Sequence[Problem]) -> None:
        """Write the problems once; shards that start together write the same.

        Raises RunError if there are others.
        """
        if not self.problems.exists():
            write_rows(self.problems, problems)
        for old, new in zip_longest(read_rows(self.problems, Problem), problems):
            if changed := differing(vars(old) if old else {}, vars(new) if new else {}):
                raise RunError(
                    f"{self.problems}: holds other problems or answers than this evaluation: of {(old or new).id!r}, "
                    f"{changed}. Choose another --out."
                )

    def each_response(self) -> tuple[EvaluationProvenance, Iterator[tuple[Problem, ResponseRow]]]:
        """Every problem with its responses from any shard, one at a time, in the order of problems.

        Raises RunError if responses are missing or parts belong to different passes, DataError where a problem is in
        two parts.
        """
        parts = sorted(self.path.glob("responses*.jsonl"))
        if not parts:
            raise RunError(f"{self.path}: has no responses. Make them with `restrain eval`.")
        provenance = shared_provenance(parts, EvaluationProvenance)
        rows = RowsByKey(parts, ResponseRow)
        ids = [problem.id for problem in each_row(self.problems, Problem)]
        missing = [each for each in ids if each not in rows]
        if missing:
            raise RunError(
                f"{self.path}: {len(missing)} of {len(ids)} problems have no responses yet (the first is "
                f"{missing[0]!r}). Run the same `restrain eval` again, with every shard if it is sharded."
            )
        return provenance, ((problem, rows[problem.id]) for problem in each_row(self.problems, Problem))


class ScoresSoFar:
    """Collects what `Scores` need, in a few numbers per problem. Every problem must have n responses."""

    def __init__(self) -> None:
        self._n: int | None = None
        self._right, self._majorities = array("q"), 0
        self._missing, self._tokens, self._truncated = 0, 0, 0

    def add(self, grades: GradeRow, response: ResponseRow | None = None) -> None:
        """Add a problem. Raises DataError if it has another number of responses, or none."""
        n = len(grades.correct)
        if self._n not in (None, n) or not n:
            raise DataError("The problems have different numbers of responses, or none. Finish the evaluation first.")
        self._n = n
        self._right.append(sum(grades.correct))
        self._missing += grades.answers.count(None)
        self._majorities += grade.majority_right(grades.group, grades.correct)
        if response is not None:
            self._tokens += sum(response.tokens)
            self._truncated += sum(response.truncated)

    def scores(self, with_lengths: bool) -> Scores:
        """The scores so far. They may only include lengths if every problem was added with its responses."""
        assert self._n is not None, "asked for once there is a problem"
        n, right, of = self._n, self._right, self._n * len(self._right)
        low, high = grade.interval_over_problems([count / n for count in right])
        return Scores(
            pass_at_1=grade.mean_pass_at_k(n, right, 1),
            low=low,
            high=high,
            pass_at_k={k: grade.mean_pass_at_k(n, right, k) for k in grade.powers_up_to(n)},
            maj_at_n=self._majorities / len(self._right),
            missing_share=self._missing / of,
            mean_tokens=self._tokens / of if with_lengths else None,
            truncated_share=self._truncated / of if with_lengths else None,
        )


def accuracy(rows: Sequence[ReferenceRow], gold: Mapping[str, str], kind: AnswerKind = MATHEMATICS) -> Scores:
    """The scores of a reference's answers of this `kind`; `gold` maps a problem's hash to its answer.

    Raises DataError for a problem without gold.
    """
    missing = next((row.id for row in rows if row.problem_hash not in gold), None)
    if missing is not None:
        raise DataError(
            f"The problem of row {missing!r} has no gold answer. Give the file the rollouts were made from."
        )
    found = ScoresSoFar()
    for row in rows:
        found.add(grade_vote(row, gold[row.problem_hash], kind))
    return found.scores(with_lengths=False)


def grade_folder(folder: BenchmarkFolder) -> Result:
    """Grade all responses of a finished benchmark, and write the grades and the result.

    Only one problem at a time is in memory. Raises RunError if responses are missing.
    """
    provenance, pairs = folder.each_response()
    kind, found = provenance.kind, ScoresSoFar()

    def graded() -> Iterator[GradeRow]:
        for problem, row in pairs:
            grades = _graded(row, problem, kind)
            found.add(grades, row)
            yield grades

    write_rows(folder.grades, graded())
    result = Result(
        provenance=provenance,
        scores=found.scores(with_lengths=True),
        extractor_version=kind.whole_version,
        grader_version=GRADER_VERSION,
    )
    write_whole(folder.result, result.model_dump_json(indent=2) + "\n")
    return result


def _graded(row: ResponseRow, problem: Problem, kind: AnswerKind) -> GradeRow:
    own = kind.graded_row(problem.text, problem.row)
    return grade_answers(row.id, kind.read_together(row.responses, own), problem.answer, kind, own)


def benchmark_folders(run: Path) -> list[BenchmarkFolder]:
    """The folders of an evaluation's benchmarks. Raises RunError if `run` is not the folder of an evaluation."""
    found = [BenchmarkFolder(path.parent) for path in sorted(run.glob("*/problems.jsonl"))]
    if not found:
        raise RunError(f"{run}: holds no evaluation. Give the --out of `restrain eval`.")
    return found


def load_results(run: Path) -> list[Result]:
    """All results of an evaluation. Raises RunError for a result that is missing or damaged."""
    return [load_result(folder, run) for folder in benchmark_folders(run)]


def load_result(folder: BenchmarkFolder, run: Path) -> Result:
    """The result of one benchmark of an evaluation. Raises RunError if it is missing or damaged."""
    file = folder.result
    try:
        return Result.model_validate_json(file.read_bytes())
    except (FileNotFoundError, ValidationError) as error:
        found = "is missing" if isinstance(error, FileNotFoundError) else "is damaged"
        raise RunError(f"{file}: {found}. Finish all shards, then run `restrain regrade {run}`.") from None
