"""A problem and its gold answer, worded as the Qwen2.5-Math evaluation words it."""

import re
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

LETTERS = ("A", "B", "C", "D")
KINDS = {"true": " (True or False)", "false": " (True or False)", "yes": " (Yes or No)", "no": " (Yes or No)"}


class Problem(BaseModel):
    """One problem as it is put to the model, and its gold answer."""

    model_config = ConfigDict(frozen=True)

    id: str
    problem: str
    answer: str


def problem_of(row_id: object, problem: str, answer: str) -> Problem:
    """As Qwen2.5-Math's `parse_question`: a problem whose answer is yes/no or true/false says so at its end."""
    return Problem(id=str(row_id), problem=(problem + KINDS.get(answer.lower(), "")).strip(), answer=answer)


def without_kind(problem: Problem) -> str:
    """The problem's text without what `problem_of` added to it because of its answer."""
    return problem.problem.removesuffix(KINDS.get(problem.answer.lower(), ""))


def with_choices(question: str, choices: Sequence[object]) -> str:
    """The question and its lettered choices in one line, as Qwen2.5-Math renders MMLU-STEM."""
    lettered = " ".join(f"({letter}) {str(choice).strip()}" for letter, choice in zip(LETTERS, choices, strict=True))
    return f"{question.strip()}\nAnswer Choices: {lettered}"


def lists_choices(problem: str) -> bool:
    """Whether the text names all four choices: `(A)`, `A)`, `A.` or `A:`."""
    return all(re.search(rf"(?:^|[\s(]){letter}[).:]", problem) for letter in LETTERS)
