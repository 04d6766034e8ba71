"""Makes a benchmark's problems from the rows of its data set, worded as in Qwen2.5-Math's evaluation."""

import hashlib
import json
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field, SerializerFunctionWrapHandler, model_serializer

from restrain_openrlhf.answers.extract import last_boxes
from restrain_openrlhf.answers.kind import parse_cell
from restrain_openrlhf.answers.kinds.options import lists, options_of
from restrain_openrlhf.data.prompt_reader import TextOrChat, reworded, text_of
from restrain_openrlhf.errors import DataError

LETTERS = ("A", "B", "C", "D")
# The subjects that Qwen2.5-Math's evaluation calls STEM.
STEM = frozenset(
    {
        "abstract_algebra",
        "astronomy",
        "college_biology",
        "college_chemistry",
        "college_computer_science",
        "college_mathematics",
        "college_physics",
        "computer_security",
        "conceptual_physics",
        "electrical_engineering",
        "elementary_mathematics",
        "high_school_biology",
        "high_school_chemistry",
        "high_school_computer_science",
        "high_school_mathematics",
        "high_school_physics",
        "high_school_statistics",
        "machine_learning",
    }
)
KINDS = {"true": " (True or False)", "false": " (True or False)", "yes": " (Yes or No)", "no": " (Yes or No)"}
PROBLEM_COLUMNS = ("problem", "question", "Question", "input")
ID_COLUMNS = ("id", "idx", "unique_id", "problem_idx")
CHOICE_COLUMNS = ("choices", "options")
# An integer that was written as a decimal number.
WHOLE = re.compile(r"^(-?\d+)\.0+$")


class AskedProblem(BaseModel, frozen=True):
    """A problem as the model gets it. `row` holds the columns that its kind of answer reads, such as options."""

    id: str
    problem: TextOrChat
    row: dict[str, Any] = Field(default_factory=dict)

    @property
    def text(self) -> str:
        return text_of(self.problem)

    @model_serializer(mode="wrap")
    def _without_empty_row(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The columns are written last, and only if there are any."""
        written: dict[str, Any] = dump(self)
        row = written.pop("row")
        return {**written, "row": row} if row else written


class Problem(AskedProblem):
    """A problem and its gold answer."""

    answer: str


Row = Mapping[str, Any]
# Turns a row and its place in the set into a problem, or None for a row that is not part of the benchmark.
Reader = Callable[[Row, int], Problem | None]


@dataclass(frozen=True)
class RowSchema:
    """The form of a data set's rows, and how a row becomes a problem.

    `columns` has an entry for every column that a row needs, with the names that it may have, the usual one first.
    """

    columns: tuple[tuple[str, ...], ...]
    read: Reader

    def fits(self, row: Row) -> bool:
        return all(any(name in row for name in names) for names in self.columns)

    def __str__(self) -> str:
        return ", ".join(" or ".join(names[:2]) for names in self.columns)


def problem_of(row_id: object, problem: TextOrChat, answer: str) -> Problem:
    """The problem as by Qwen2.5-Math's `parse_question`, which appends a hint if the answer is yes/no or true/false."""
    asked = reworded(problem, lambda text: (text + KINDS.get(answer.lower(), "")).strip())
    return Problem(id=str(row_id), problem=asked, answer=answer)


def without_kind(problem: Problem) -> TextOrChat:
    """The problem without the hint that `problem_of` has appended because of the answer."""
    return reworded(problem.problem, lambda text: text.removesuffix(KINDS.get(problem.answer.lower(), "")))


def with_choices(question: str, choices: Sequence[object]) -> str:
    """The question, and its lettered choices in one line, as Qwen2.5-Math renders MMLU-STEM."""
    lettered = " ".join(f"({letter}) {str(choice).strip()}" for letter, choice in zip(LETTERS, choices, strict=True))
    return f"{question.strip()}\nAnswer Choices: {lettered}"


def lists_choices(problem: str) -> bool:
    """Whether the text names all four choices: `(A)`, `A)`, `A.` or `A:`."""
    return all(re.search(rf"(?:^|[\s(]){letter}[).:]", problem) for letter in LETTERS)


def worded(row: Row, place: int) -> Problem:
    """A problem with gold from `answer`, or else from the last box in `solution` (as in MATH and Minerva).

    Raises DataError for choices that are not in the text, because the model would not see them.
    """
    _refuse_unlisted(row, prompt := _asked(row))
    return problem_of(_id(row, place), prompt, _gold(row))


def plain(row: Row, place: int) -> Problem:
    """A problem with text and gold unchanged. Options that the text does not list are appended with letters."""
    prompt = with_options(_asked(row), row)
    if not options_of(row):
        _refuse_unlisted(row, prompt)
    return Problem(id=str(_id(row, place)), problem=prompt, answer=plain_answer(row))


def _refuse_unlisted(row: Row, prompt: TextOrChat) -> None:
    if (columns := choice_columns(row)) and not lists_choices(text_of(prompt)):
        raise DataError(
            f"the problem's text is without the choices in {', '.join(columns)}, which have to be a list in the column "
            "`options`"
        )


def with_options(prompt: TextOrChat, row: Row) -> TextOrChat:
    """The prompt, followed by the row's options in a line each, unless it already lists them.

    Raises DataError for options that the kind `choice` could not read.
    """
    text = text_of(prompt)
    options = options_of({"problem": text, **row})
    if not options or lists(text, options):
        return prompt
    lines = [f"({each.label}) {each.text.strip()}" for each in options]
    return reworded(prompt, lambda asked: "\n".join([asked.strip(), *lines]))


def plain_answer(row: Row) -> str:
    """The gold answer as text, or as JSON if it is a list or an object; without one that of the solution's last box."""
    value = row["answer"] if "answer" in row else _gold(row)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else answer_text(value)


def amc(row: Row, place: int) -> Problem:
    """AI-MO's AMC. `answer` is a number such as 142.0, and in copies of the set often the text "142.0"."""
    answer = answer_text(row["answer"])
    return problem_of(_id(row, place), _text(row), WHOLE.sub(r"\1", answer))


def olympiad(row: Row, place: int) -> Problem:
    """OlympiadBench. Gold is the first of `final_answer`, without dollar signs."""
    answers = row["final_answer"]
    if not isinstance(answers, list) or not answers:
        raise DataError(f"`final_answer` is {answers!r}; it must be a list of answers")
    return problem_of(_id(row, place), _text(row), answer_text(answers[0]).strip("$"))


def mmlu(row: Row, place: int) -> Problem | None:
    """MMLU's rows of the subjects in STEM. `answer` is the place of the right choice, or its letter."""
    if (row["subject"] if "subject" in row else row["type"]) not in STEM:
        return None
    choices = parse_cell(row["choices"])
    if not isinstance(choices, list) or len(choices) != len(LETTERS) or None in choices:
        raise DataError(f"`choices` is {choices!r}; it must be a list of four")
    return problem_of(_id(row, place), with_choices(_text(row), choices), _letter(row["answer"]))


def gpqa(row: Row, place: int) -> Problem:
    """GPQA, with its four answers in an order that depends only on the question's hash."""
    question = _text(row)
    names = ["Correct Answer", *(f"Incorrect Answer {number}" for number in (1, 2, 3))]
    empty = [name for name in names if not str(row[name] or "").strip()]
    if empty:
        raise DataError(f"`{empty[0]}` is empty; all four answers are needed")
    random.Random(hashlib.sha256(question.encode()).digest()).shuffle(names)
    letter = LETTERS[names.index("Correct Answer")]
    return problem_of(row.get("Record ID") or place, with_choices(question, [row[name] for name in names]), letter)


def choice_columns(row: Row) -> list[str]:
    """The columns with a row's choices; empty if there are no such columns."""
    single = list(LETTERS) if all(row.get(letter) is not None for letter in LETTERS) else []
    return [name for name in CHOICE_COLUMNS if row.get(name)] or single


def answer_text(value: object) -> str:
    """An answer as text; 142.0 becomes 142. Raises DataError if there is no answer, and for several."""
    if value is None or isinstance(value, list | dict) or (isinstance(value, float) and not math.isfinite(value)):
        raise DataError(f"its answer is {value!r}; it must be a single answer, as text or a number")
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def _id(row: Row, place: int) -> object:
    return next((row[name] for name in ID_COLUMNS if row.get(name) is not None), place)


def _asked(row: Row) -> TextOrChat:
    """The problem of a file of the user's, which can be a chat."""
    return row["problem"] if isinstance(row.get("problem"), list) else _text(row)


def _text(row: Row) -> str:
    column = next((name for name in PROBLEM_COLUMNS if row.get(name)), None)
    if column is None or not isinstance(row[column], str):
        raise DataError(f"`{column or 'problem'}` must be text, but is {row.get(column or 'problem')!r}")
    return str(row[column])


def _gold(row: Row) -> str:
    if "answer" in row:
        return answer_text(row["answer"])
    boxed = last_boxes(row["solution"]) if isinstance(row["solution"], str) else None
    if boxed is None:
        raise DataError("it has no `answer`, and its `solution` has no \\boxed{}")
    return boxed.strip()


def _letter(answer: object) -> str:
    for place, letter in enumerate(LETTERS):
        if answer in (place, letter):
            return letter
    raise DataError(f"`answer` is {answer!r}; it must be a choice's place, 0 to 3, or its letter")


AMC = RowSchema((PROBLEM_COLUMNS, ("answer",)), amc)
WORDED = RowSchema((PROBLEM_COLUMNS, ("answer", "solution")), worded)
PLAIN = RowSchema((PROBLEM_COLUMNS, ("answer",)), plain)
PLAIN_MATHEMATICS = RowSchema((PROBLEM_COLUMNS, ("answer", "solution")), plain)
OLYMPIAD = RowSchema((("question",), ("final_answer",)), olympiad)
GPQA = RowSchema(
    (("Question",), ("Correct Answer",), *((f"Incorrect Answer {number}",) for number in (1, 2, 3))),
    gpqa,
)
# The column is called `subject` on the hub, and `type` in Qwen2.5-Math's files.
MMLU = RowSchema((("question",), ("choices",), ("answer",), ("subject", "type")), mmlu)
