"""Grades responses: the text alone decides, so that the same text always gets the same grade."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.answers import extract
from restrain_openrlhf.answers.gold import is_right

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
