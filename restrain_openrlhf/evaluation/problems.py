"""From a data set's row to a problem with its gold answer, worded as the Qwen2.5-Math evaluation words it."""

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.answers.boxes import last_boxes
from restrain_openrlhf.errors import DataError

LETTERS = "ABCD"
PROBLEM_COLUMNS = ("problem", "question", "Question", "input")
SHORT_ANSWER = 80


class Problem(BaseModel):
    """One problem as it is put to the model, and its gold answer."""

    model_config = ConfigDict(frozen=True)

    id: str
    problem: str
    answer: str


# A row and its place in the set, to a problem; None for a row that is not part of the benchmark.
Shape = Callable[[Mapping[str, Any], int], Problem | None]


def plain(problem: str, answer: str, row_id: str | None = None) -> Shape:
    """Columns that hold problem and answer as they are."""

    def read(row: Mapping[str, Any], place: int) -> Problem:
        found = row[row_id] if row_id is not None and row.get(row_id) is not None else place
        return problem_of(found, row[problem], answer_text(row[answer]))

    return read


def local(row: Mapping[str, Any], place: int) -> Problem:
    """A row of a user's own file: {id, problem, answer}, or `question` for the problem as in Qwen2.5-Math's files."""
    column = next((name for name in PROBLEM_COLUMNS if row.get(name)), None)
    if column is None or row.get("answer") is None:
        raise DataError(
            f"needs `problem` (or `question`) and `answer`; its columns are {', '.join(sorted(map(str, row)))}"
        )
    found = next((row[name] for name in ("id", "idx", "unique_id") if row.get(name) is not None), place)
    return problem_of(found, str(row[column]), answer_text(row["answer"]))


KINDS = {"true": " (True or False)", "false": " (True or False)", "yes": " (Yes or No)", "no": " (Yes or No)"}


def problem_of(row_id: object, problem: str, answer: str) -> Problem:
    """As Qwen2.5-Math's `parse_question`: a problem whose answer is yes/no or true/false says so at its end."""
    return Problem(id=str(row_id), problem=(problem + KINDS.get(answer.lower(), "")).strip(), answer=answer)


def without_kind(problem: Problem) -> str:
    """The problem's text without what `problem_of` added to it because of its answer."""
    return problem.problem.removesuffix(KINDS.get(problem.answer.lower(), ""))


def answer_text(value: object) -> str:
    """An answer as text; a whole number that was stored as 142.0 is 142."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def with_choices(question: str, choices: Sequence[object]) -> str:
    """The question and its lettered choices in one line, as Qwen2.5-Math renders MMLU-STEM."""
    lettered = " ".join(f"({letter}) {str(choice).strip()}" for letter, choice in zip(LETTERS, choices, strict=True))
    return f"{question.strip()}\nAnswer Choices: {lettered}"


def olympiad(row: Mapping[str, Any], place: int) -> Problem:
    """OlympiadBench: the first of `final_answer`, without its dollars."""
    return problem_of(row.get("id", place), row["question"], str(row["final_answer"][0]).strip("$"))


def mmlu(subjects: frozenset[str]) -> Shape:
    """MMLU rows of these subjects; `answer` is the right choice's place."""

    def read(row: Mapping[str, Any], place: int) -> Problem | None:
        if row["subject"] not in subjects:
            return None
        return problem_of(place, with_choices(row["question"], row["choices"]), LETTERS[int(row["answer"])])

    return read


def gpqa(row: Mapping[str, Any], place: int) -> Problem:
    """GPQA: four answers in an order drawn from the question's own hash, so that it never changes."""
    question = str(row["Question"])
    names = ["Correct Answer", *(f"Incorrect Answer {number}" for number in (1, 2, 3))]
    random.Random(hashlib.sha256(question.encode()).digest()).shuffle(names)
    letter = LETTERS[names.index("Correct Answer")]
    return problem_of(row.get("Record ID") or place, with_choices(question, [row[name] for name in names]), letter)


def verifiable(row: Mapping[str, Any], place: int) -> Problem | None:
    """s1K rows whose gold can be checked by an answer grader: mathematics with a boxed or a short one-line answer."""
    solution = str(row["solution"]).strip()
    answer = last_boxes(solution) or (solution if len(solution) <= SHORT_ANSWER and "\n" not in solution else None)
    if row["cot_type"] != "math" or not answer:
        return None
    return problem_of(place, row["question"], answer)
