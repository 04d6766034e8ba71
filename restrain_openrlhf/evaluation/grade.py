"""The one grader, of evaluations and of files of rollouts: the text alone decides, so equal texts get equal grades."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.answers import extract
from restrain_openrlhf.answers.gold import is_right
from restrain_openrlhf.data.gold import asked, load_gold
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.data.jsonl import Identified, read_identified_rows
from restrain_openrlhf.errors import DataError

# Raised when extraction or equality in evaluation changes; results say by which they were made.
GRADER_VERSION = "1"


@dataclass(frozen=True)
class Grade:
    """The answer a response gives (None: none), and whether it is right."""

    answer: str | None
    correct: bool


class GradeRow(BaseModel):
    """The grades of one problem's n responses, in their order."""

    model_config = ConfigDict(frozen=True)

    id: str
    gold: str
    answers: tuple[str | None, ...]
    correct: tuple[bool, ...]


def grade(response: str, gold: str) -> Grade:
    """By the extractor of training and the policy of evaluation (docs/concepts/answers.md). Total on any text."""
    answer = extract(response)
    return Grade(answer, is_right(answer, gold))


def grade_problem(problem_id: str, responses: Sequence[str], gold: str) -> GradeRow:
    """All responses to one problem."""
    return grade_answers(problem_id, [extract(response) for response in responses], gold)


def grade_answers(problem_id: str, answers: Sequence[str | None], gold: str) -> GradeRow:
    """All answers to one problem (None: missing, which is wrong); each is compared with gold once."""
    verdicts = {answer: is_right(answer, gold) for answer in set(answers)}
    correct = tuple(verdicts[answer] for answer in answers)
    return GradeRow(id=problem_id, gold=gold, answers=tuple(answers), correct=correct)


class RolloutsRow(Identified):
    """A row of a file of rollouts, as `restrain score` reads it; `reference_correct`: another grader's verdicts."""

    problem: str
    responses: tuple[str, ...]
    answer: str | int | float | None = None
    reference_correct: tuple[bool, ...] | None = None


@dataclass(frozen=True)
class Difference:
    """One response on which two gradings differ."""

    id: str
    response: int
    answer: str | None
    gold: str
    ours: bool

    def __str__(self) -> str:
        """One line for a list."""
        words = {True: "right", False: "wrong"}
        return (
            f"{self.id}, response {self.response}: {self.answer!r} for gold {self.gold!r}: "
            f"ours {words[self.ours]}, reference {words[not self.ours]}"
        )


def read_rollouts(path: Path) -> list[RolloutsRow]:
    """All rows. Raises DataError for a damaged row, one without responses, repeated ids, NULs, and an empty file."""
    rows = read_identified_rows(path, RolloutsRow)
    for number, row in rows:
        if not row.responses:
            raise DataError(f"{path}, line {number}: responses is empty. Remove the row.")
        if row.reference_correct is not None and len(row.reference_correct) != len(row.responses):
            raise DataError(f"{path}, line {number}: reference_correct has not one verdict per response. Fix the row.")
    if not rows:
        raise DataError(f"{path}: has no rows. Give a file of rollouts.")
    return [row for _, row in rows]


def grade_rollouts(rollouts: Sequence[RolloutsRow], path: Path, gold: Path | None) -> list[GradeRow]:
    """Grades of every row, its gold from `gold` (joined by problem or id) where given, else from the row.

    Raises DataError for a row without gold, and for a gold file of other problems.
    """
    problems = asked([(row.id, row.problem) for row in rollouts])
    by_problem = load_gold(gold).answers(str(path), problems) if gold else {}
    return [grade_problem(str(row.id), row.responses, _gold(row, path, by_problem, gold)) for row in rollouts]


def _gold(row: RolloutsRow, path: Path, by_problem: dict[str, str], file: Path | None) -> str:
    answer = by_problem.get(text_hash(row.problem)) if file else row.answer
    if answer is None:
        where = f"{file} has no answer to it" if file else "it has no `answer`"
        raise DataError(f"{path}: the row {row.id!r} cannot be graded: {where}. Give its gold with --gold FILE.")
    return str(answer)


def differences(rollouts: Sequence[RolloutsRow], grades: Sequence[GradeRow]) -> list[Difference]:
    """Every response that the rows' reference grading judges otherwise."""
    return [
        Difference(row.id, place, row.answers[place], row.gold, correct)
        for given, row in zip(rollouts, grades, strict=True)
        for place, (correct, verdict) in enumerate(
            zip(row.correct, given.reference_correct or row.correct, strict=True)
        )
        if correct != verdict
    ]
