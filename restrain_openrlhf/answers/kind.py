"""The base class of kinds of answers: how to read an answer, which answers are equal, and which are right."""

import ast
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, BeforeValidator, SerializeAsAny, ValidationError, model_validator
from pydantic_core import to_jsonable_python

from restrain_openrlhf.answers.extract import said
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.method.registry import Registry

# A prompt's row in its data set: `problem`, and the columns that the kind of answer reads.
Row = Mapping[str, Any]
PROBLEM = "problem"
# The key of each answer, None for a missing one.
Keys = Sequence[str | None]
# Usual names of columns with gold.
GOLD = frozenset({"answer", "final_answer", "gold", "ground_truth", "label", "solution", "test", "test_list"})
# How programs write out a missing value.
MISSING = frozenset({"nan", "NaN", "null", "NULL", "None", "<NA>"})
# Most characters that an error shows of each of two values, and how many of them stand before the first difference.
SHOWN, SHOWN_BEFORE = 60, 20

Columns = TypeVar("Columns", bound=BaseModel)


@dataclass(frozen=True)
class Grade:
    """The answer of a response, None if it has none, and whether the answer is right."""

    answer: str | None
    correct: bool


class AnswerKind(BaseModel, ABC, frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True):
    """One kind of answer, with its settings as fields, each described by the text below it, as in `kinds/`.

    `version` is stored with everything that was made with this kind: raise it when the same response would get another
    answer, or the same answers other classes. `is_plain` says that `extract` and `key` are quick and need no columns,
    so that an answer's words can be looked for (answers/shown.py). `columns` are the columns of a row that the kind
    reads besides `problem`, which never include gold. `gold_columns` belong to gold, such as its other spellings; only
    `is_right` reads them, so they never change a vote. `without_effect` names settings that change no answer and no
    class. `reads` says in a sentence what counts as an answer, and `advice` what to do, for the warning that many
    responses have none. `instruction` asks a chat model for such an answer. `has_words`: gold may be a word (None).
    """

    version: ClassVar[str]
    is_plain: ClassVar[bool] = False
    reads: ClassVar[str]
    advice: ClassVar[str] = (
        "ask for such an answer in the prompts' template, allow longer responses, or choose the kind of answer that "
        "the prompts have (`answers:`, docs/concepts/kinds.md)."
    )
    columns: ClassVar[frozenset[str]] = frozenset()
    gold_columns: ClassVar[frozenset[str]] = frozenset()
    without_effect: ClassVar[frozenset[str]] = frozenset()
    instruction: ClassVar[str] = ""
    has_words: ClassVar[bool] = True

    name: str

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Keep gold from votes and thoughts from all reading, here and nowhere else, for your own kinds too."""
        super().__pydantic_init_subclass__(**kwargs)
        for name, limit in LIMITS:
            if name in vars(cls):
                setattr(cls, name, limit(vars(cls)[name]))

    @model_validator(mode="after")
    def _votes_without_gold(self) -> "AnswerKind":
        if gold := (GOLD | self.graded_columns()) & self.row_columns():
            raise ValueError(
                f"votes of the kind {self.name!r} would read the column {min(gold)!r}, which belongs to gold, so that "
                "no method would be label-free; leave it out of the kind's `columns`"
            )
        return self

    @abstractmethod
    def extract(self, response: str, row: Row) -> str | None:
        """The answer of a response; None if it has none. Accepts any text.

        What it gets has neither thoughts nor marks of a chat template (`extract.said`).

        Raises DataError if the row lacks a column that this kind needs, or has it in another form.
        """

    @abstractmethod
    def key(self, answer: str, row: Row) -> str:
        """A text that is equal for equal answers, the same in every process and run."""

    def classes(self, answers: Sequence[str | None], row: Row) -> list[int | None]:
        """Each answer's class within a group, numbered by first appearance; None for a missing answer.

        Equality must be an equivalence relation. The order of the answers changes only the classes' numbers.
        """
        return number_classes([None if answer is None else self.key(answer, row) for answer in answers])

    def alike(self, keys: Keys) -> list[int | None]:
        """The classes of answers to different prompts, numbered as in `classes`, by the answers' keys (None: missing).

        No row belongs to all of them, so a kind in which answers with different keys can be equal compares the keys.
        """
        return number_classes(keys)

    @staticmethod
    def _alike_by_part(
        keys: Keys, part_of: Callable[[str], str], alike: Callable[[str, Keys], list[int | None]]
    ) -> list[int | None]:
        """As `alike`, where keys of different parts never are; `alike` gets a part, and None for keys of others."""
        parts, found = [None if key is None else part_of(key) for key in keys], list[Hashable](keys)
        for part in {part for part in parts if part is not None}:
            labels = alike(part, [key if own == part else None for key, own in zip(keys, parts, strict=True)])
            found = [each if label is None else (part, label) for each, label in zip(found, labels, strict=True)]
        return number_classes(found)

    def is_right(self, answer: str | None, gold: str, row: Row) -> bool:
        """Whether an answer is right in evaluation, which may be more lenient than a vote. A missing answer is wrong.

        `row` is a `graded_row`: it also has the columns that belong to gold, if they are known.
        """
        return answer is not None and self.key(answer, row) == self.key(gold, row)

    def answer_of_gold(self, gold: str, row: Row) -> str | None:
        """Gold as an answer that could vote; None if gold consists of tests that an answer has to pass."""
        return gold

    def gold_in(self, cell: object) -> str | None:
        """The gold answer in a cell of a table; None for a missing or empty one.

        Raises DataError for NaN, and where gold has no words for a missing value that is written out, such as "nan".
        """
        text = "" if cell is None else str(cell)
        if text.strip() in MISSING and not (self.has_words and isinstance(cell, str)):
            raise DataError(
                f"its gold answer is {text.strip()}, as programs write a missing value. Leave the cell empty. If it is "
                f"the answer, write it otherwise (none), or choose a kind of answer that has words instead of "
                f"{self.name}, such as text."
            )
        return text if text.strip() else None

    def grade(self, response: str, gold: str, row: Row) -> Grade:
        """The response's answer, and whether it is right."""
        answer = self.extract(response, row)
        return Grade(answer, self.is_right(answer, gold, row))

    def check(self, rows: Iterable[Row] = ()) -> None:
        """Check this machine and the known rows, so that errors are found before hours of work.

        Raises ConfigError if this machine lacks a program, package or model that the kind needs, and DataError for a
        row that lacks a column.
        """
        self.check_machine()
        for row in rows if self.row_columns() | self.graded_columns() else ():
            self.check_row(row)

    def check_machine(self) -> None:
        """Raises ConfigError if this machine lacks a program, package or model that the kind needs."""

    def check_row(self, row: Row) -> None:
        """Raises DataError if the row lacks a column that this kind reads, or has it in another form."""
        self.extract("", row)

    def check_prompt(self, text: str, row: Row) -> None:
        """Raises DataError if a prompt's text lacks something that the policy needs to answer, such as the options."""

    def row_columns(self) -> frozenset[str]:
        """The columns that votes read: `columns`, unless the settings say otherwise."""
        return self.columns

    def graded_columns(self) -> frozenset[str]:
        """The columns that belong to gold: `gold_columns`, unless the settings say otherwise."""
        return self.gold_columns

    def row(self, problem: str, columns: Mapping[str, Any]) -> Row:
        """The row of a prompt for voting: its problem, and those of a data set's `columns` that votes read."""
        return {PROBLEM: problem, **self.own_columns(columns)}

    def graded_row(self, problem: str, columns: Mapping[str, Any]) -> Row:
        """The row of a prompt for grading: as `row`, with the columns that belong to gold."""
        return {PROBLEM: problem, **self.own_columns(columns, graded=True)}

    def own_columns(self, columns: Mapping[str, Any], graded: bool = False) -> dict[str, Any]:
        """The columns that this kind reads besides the problem, with those of gold if `graded`.

        Files that this project writes keep them in one column, `row`.
        """
        names = self.row_columns() | (self.graded_columns() if graded else frozenset())
        known = {**(columns.get("row") or {}), **columns} if names else {}
        # In a CSV file, a column that a row lacks is an empty string.
        found = {name: known[name] for name in names if known.get(name) is not None}
        return {name: value for name, value in found.items() if not isinstance(value, str) or value.strip()}

    def instruction_for(self, row: Row) -> str:
        """A sentence that asks a chat model for such an answer: `instruction`, unless the settings or row change it."""
        return self.instruction

    def refuse_missing_packages(self) -> None:
        """Raises GraderError if a package that reads or compares answers is missing. Called before a run starts."""

    def reads_together(self, row: Row) -> bool:
        """Whether a response's answer may depend on the rest of its group."""
        return type(self).read_together is not AnswerKind.read_together

    def read_together(self, responses: Sequence[str], row: Row) -> list[str | None]:
        """The answer of each response of a group, whose order changes nothing. Raises what `extract` raises."""
        return [self.extract(response, row) for response in responses]

    def voted_answers(self, responses: Sequence[str], truncated: Sequence[bool], row: Row) -> list[str | None]:
        """The answers that a group's rollouts vote for; None for a response that was cut off by the length limit.

        Evaluation also grades truncated responses, with `read_together` (docs/decisions/0004-one-grader.md).
        """
        whole = [response for response, is_cut in zip(responses, truncated, strict=True) if not is_cut]
        answers = iter(self.read_together(whole, row))
        return [None if is_cut else next(answers) for is_cut in truncated]

    @property
    def whole_version(self) -> str:
        """The version, with those of other kinds that this one uses."""
        return self.version

    @property
    def identity(self) -> str:
        """Name, whole version, and settings that differ from the defaults. Equal identities read answers alike."""
        changed = self.model_dump(mode="json", exclude_defaults=True, exclude={"name", *self.without_effect})
        settings = "".join(f" {key}={value!r}" for key, value in sorted(changed.items()))
        return f"{self.name} {self.whole_version}{settings}"


def _of_what_is_said(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def reading(self: AnswerKind, response: str, row: Row) -> Any:
        text = said(response)
        return None if text is None else method(self, text, row)

    return reading


def _of_all_that_is_said(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def reading(self: AnswerKind, responses: Sequence[str], row: Row) -> list[str | None]:
        texts = [said(response) for response in responses]
        answers = iter(method(self, [text for text in texts if text is not None], row))
        return [None if text is None else next(answers) for text in texts]

    return reading


def _with_own_columns(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def voting(self: AnswerKind, given: Any, row: Row) -> Any:
        own = {PROBLEM, *self.row_columns()}
        return method(self, given, row if row.keys() <= own else {name: row[name] for name in row if name in own})

    return voting


# Methods that read responses see no thoughts, and those that make votes only the columns in `row_columns` of a row.
LIMITS = (
    ("extract", _of_what_is_said),
    ("read_together", _of_all_that_is_said),
    *((name, _with_own_columns) for name in ("extract", "read_together", "key", "classes")),
)


def number_classes(keys: Sequence[Hashable | None]) -> list[int | None]:
    """Number equal keys alike, in order of first appearance; None stays None."""
    numbers: dict[Hashable, int] = {}
    return [None if key is None else numbers.setdefault(key, len(numbers)) for key in keys]


def differing(there: Mapping[str, Any], here: Mapping[str, Any]) -> str | None:
    """The first column, by name, in which two rows differ, with both values cut; None if they do not differ.

    A list or mapping equals the CSV cell that has it as text. A key without a value, which Arrow gives to every mapping
    of a column, is no key.
    """
    for name in sorted(there.keys() | here.keys()):
        one, other = (_plain(_of_cell(row.get(name))) for row in (there, here))
        if one != other:
            texts = repr(one), repr(other)
            first = next((place for place, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), 0)
            start = max(first - SHOWN_BEFORE, 0)
            shown = ["…" * bool(start) + text[start : start + SHOWN] for text in texts]
            return f"{name!r} is {shown[0]} there and {shown[1]} here"
    return None


def _of_cell(value: Any) -> Any:
    parsed = parse_cell(value)
    return to_jsonable_python(parsed if isinstance(parsed, list | dict) else value, fallback=str)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if each is not None}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def read_columns(model: type[Columns], row: Row) -> Columns:
    """The row's columns, parsed by `model`. Raises DataError with the column, its content and the fix."""
    try:
        return model.model_validate(dict(row))
    except ValidationError as error:
        # If a column may have several forms, the last one is the usual one.
        usual = error.errors()[-1]
        raise DataError(
            f"The prompt {str(row.get(PROBLEM))[:60]!r} has {usual['input']!r:.80} in its column {usual['loc'][0]!r}: "
            f"{usual['msg'].removeprefix('Value error, ')}. Correct the column in the prompts' file, or choose another "
            "kind of answer."
        ) from None


def parse_cell(value: Any) -> Any:
    """Parse a list or mapping that a CSV cell holds as text, in JSON or Python; other values are unchanged."""
    text = value.strip() if isinstance(value, str) else ""
    with suppress(ValueError, RecursionError):
        return json.loads(text) if text[:1] in ("[", "{") else value
    with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        # ['a' 'b'], which is how NumPy prints two strings, would be one string in Python.
        return found if repr(found := ast.literal_eval(text)) == text else value
    return value


def _parsed_listing(value: Any) -> Any:
    found = parse_cell(value)
    if isinstance(found, str):
        raise ValueError('must be a list, which a cell of a CSV file has as JSON, such as ["one", "two"]')
    return found


# For a column that holds a list or a mapping.
ParsedCell = BeforeValidator(_parsed_listing)


KINDS: Registry[AnswerKind] = Registry("answers", "kind of answer", "restrain_openrlhf.answers", "my_kind")

register = KINDS.register
parse_kind = KINDS.parse

# The type of a field that holds any kind of answer with its settings, parsed strictly.
AnyKind = Annotated[SerializeAsAny[AnswerKind], BeforeValidator(KINDS.of_field)]
