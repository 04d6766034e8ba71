"""A kind of answer: what a response answers, which answers are equal, and what is right; chosen by its name."""

import ast
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, SerializeAsAny, ValidationError, model_validator

from restrain_openrlhf.errors import DataError
from restrain_openrlhf.method.registry import Registry

# A prompt's own data, as its data set has them: `problem`, and the columns that its kind of answer reads.
Row = Mapping[str, Any]
PROBLEM = "problem"
# Names under which data sets have gold, whatever the kind of answer.
GOLD = frozenset({"answer", "final_answer", "gold", "ground_truth", "label", "solution", "test", "test_list"})
# What votes are made of: these methods see no other columns of a row than `row_columns`.
OF_VOTES = ("extract", "key", "classes")

Columns = TypeVar("Columns", bound=BaseModel)


@dataclass(frozen=True)
class Grade:
    """The answer a response gives (None: none), and whether it is right."""

    answer: str | None
    correct: bool


class AnswerKind(BaseModel, ABC):
    """One kind of answer: its settings are its fields, and each is a file in `kinds/`.

    `version` is in the provenance of everything that was made with this kind: raise it where the same response would
    get another answer, or the same answers other classes. `columns` are the columns of a row that the kind reads
    besides `problem`; gold is never one of them. `gold_columns` are those that belong to gold, such as its other
    spellings: `is_right` alone reads them, so they never change a vote. `without_effect` names settings that change no
    answer and no class. `reads` says in one sentence what counts as an answer, and `advice` what to do, for the warning
    where many responses have none.
    `instruction` asks a chat model for such an answer. `narrowness` orders kinds that read the same responses: the
    higher, the fewer texts are such an answer, and 0 is for a kind that reads nearly any.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: ClassVar[str]
    reads: ClassVar[str]
    advice: ClassVar[str] = (
        "ask for such an answer in the prompts' template, allow longer responses, or choose the kind of answer that "
        "the prompts have (`answers:`, docs/concepts/kinds.md)."
    )
    columns: ClassVar[frozenset[str]] = frozenset()
    gold_columns: ClassVar[frozenset[str]] = frozenset()
    without_effect: ClassVar[frozenset[str]] = frozenset()
    instruction: ClassVar[str] = ""
    narrowness: ClassVar[int] = 1

    name: str

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Here and nowhere else gold is kept from votes: whatever row a caller has, they see only their own columns."""
        super().__pydantic_init_subclass__(**kwargs)
        for name in OF_VOTES:
            if name in vars(cls):
                setattr(cls, name, _with_own_columns(vars(cls)[name]))

    @model_validator(mode="after")
    def _votes_without_gold(self) -> "AnswerKind":
        if gold := (GOLD | self.graded_columns()) & self.row_columns():
            raise ValueError(
                f"votes of the kind {self.name!r} would read the column {min(gold)!r}, which belongs to gold, so that "
                "no method would be label-free; leave it out (of `columns` of your own kind, of `send` of a judge)"
            )
        return self

    @abstractmethod
    def extract(self, response: str, row: Row) -> str | None:
        """The answer of a response, None where it has none. Total on any text.

        Raises DataError where the row lacks what this kind needs, or has it in another form.
        """

    @abstractmethod
    def key(self, answer: str, row: Row) -> str:
        """A text that is equal for equal answers, the same in every process and run."""

    def classes(self, answers: Sequence[str | None], row: Row) -> list[int | None]:
        """Each answer's class within one group, numbered in order of first appearance; None for a missing answer.

        Equality is an equivalence: reflexive, symmetric, transitive. The order of the answers changes only the numbers.
        """
        return number_classes([None if answer is None else self.key(answer, row) for answer in answers])

    def is_right(self, answer: str | None, gold: str, row: Row) -> bool:
        """Evaluation's rule; a missing answer is wrong. It may be more lenient than a vote.

        `row` has the columns that belong to gold, too, where they are known (`graded_row`).
        """
        return answer is not None and self.key(answer, row) == self.key(gold, row)

    def answer_of_gold(self, gold: str, row: Row) -> str | None:
        """Gold as an answer that could vote; None where gold is tests that an answer has to pass."""
        return gold

    def grade(self, response: str, gold: str, row: Row) -> Grade:
        """The response's answer, and whether it is right."""
        answer = self.extract(response, row)
        return Grade(answer, self.is_right(answer, gold, row))

    def recognises(self, response: str, row: Row) -> bool:
        """Whether a response looks written for this kind; `restrain premise` asks it of kinds that nobody named."""
        return self.extract(response, row) is not None

    def check(self, rows: Iterable[Row] = ()) -> None:
        """What would stop hours of work later is told before they begin: call it first, with the rows that are known.

        Raises ConfigError where this machine lacks what the kind needs (a program, a package, a model), and DataError
        for a row that lacks what it reads.
        """
        self.check_machine()
        for row in rows if self.row_columns() | self.graded_columns() else ():
            self.check_row(row)

    def check_machine(self) -> None:
        """Raises ConfigError where this machine lacks what the kind needs."""

    def check_row(self, row: Row) -> None:
        """Raises DataError where the row lacks what this kind reads, or has it in another form."""
        self.extract("", row)

    def check_prompt(self, text: str, row: Row) -> None:
        """Raises DataError where the text that a policy is to see lacks what its answers need."""

    def row_columns(self) -> frozenset[str]:
        """The columns that a prompt's row needs to have with it: `columns`, unless the settings say otherwise."""
        return self.columns

    def graded_columns(self) -> frozenset[str]:
        """The columns that belong to gold: `gold_columns`, unless the settings say otherwise."""
        return self.gold_columns

    def row(self, problem: str, columns: Mapping[str, Any]) -> Row:
        """The row of a prompt: its problem, and of a data set's `columns` those that votes read; none of gold's."""
        return {PROBLEM: problem, **self.own_columns(columns)}

    def graded_row(self, problem: str, columns: Mapping[str, Any]) -> Row:
        """As `row`, with the columns that belong to gold: for whatever compares answers with gold."""
        return {PROBLEM: problem, **self.own_columns(columns, graded=True)}

    def own_columns(self, columns: Mapping[str, Any], graded: bool = False) -> dict[str, Any]:
        """Those that this kind reads besides the problem; gold's only if `graded`.

        Files that this project writes have them in one column, `row`.
        """
        names = self.row_columns() | (self.graded_columns() if graded else frozenset())
        known = {**(columns.get("row") or {}), **columns} if names else {}
        # In a CSV file a cell that a row does not need is an empty text.
        found = {name: known[name] for name in names if known.get(name) is not None}
        return {name: value for name, value in found.items() if not isinstance(value, str) or value.strip()}

    def instruction_for(self, row: Row) -> str:
        """A sentence that asks a chat model for such an answer: `instruction`, unless settings or row say otherwise."""
        return self.instruction

    def refuse_missing_packages(self) -> None:
        """Raises GraderError where a package that reads or compares answers is not installed: before a run starts."""

    def voted_answer(self, response: str, truncated: bool, row: Row) -> str | None:
        """What a rollout votes for: the answer of its response; None where the length limit cut it off.

        Evaluation grades truncated responses too, by `extract` alone (docs/decisions/0004-one-grader.md).
        """
        return None if truncated else self.extract(response, row)

    @property
    def whole_version(self) -> str:
        """With the versions of other kinds by which this one reads."""
        return self.version

    @property
    def identity(self) -> str:
        """Name, whole version, and the settings that differ from the defaults; equal where answers are read alike."""
        changed = self.model_dump(mode="json", exclude_defaults=True, exclude={"name", *self.without_effect})
        settings = "".join(f" {key}={value!r}" for key, value in sorted(changed.items()))
        return f"{self.name} {self.whole_version}{settings}"


def _with_own_columns(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def voting(self: AnswerKind, given: Any, row: Row) -> Any:
        own = {PROBLEM, *self.row_columns()}
        return method(self, given, row if row.keys() <= own else {name: row[name] for name in row if name in own})

    return voting


def number_classes(keys: Sequence[Hashable | None]) -> list[int | None]:
    """Equal keys get one number, in order of first appearance; None stays None."""
    numbers: dict[Hashable, int] = {}
    return [None if key is None else numbers.setdefault(key, len(numbers)) for key in keys]


def read_columns(model: type[Columns], row: Row) -> Columns:
    """The row's columns as the `model` types them. Raises DataError naming the column, what it holds, and the fix."""
    try:
        return model.model_validate(dict(row))
    except ValidationError as error:
        first, *others = error.errors()
        column = first["loc"][0]
        # Of the forms that a column may have the last is the usual one.
        usual = [each for each in (first, *others) if each["loc"][:1] == (column,)][-1]
        raise DataError(
            f"The prompt {str(row.get(PROBLEM))[:60]!r} has {usual['input']!r:.80} in its column {column!r}: "
            f"{usual['msg'].removeprefix('Value error, ')}. Correct the column in the prompts' file, or choose another "
            "kind of answer."
        ) from None


def of_a_cell(value: Any) -> Any:
    """A list or a mapping as text, in JSON or as Python writes it, as a CSV file has to have it; others as they are."""
    text = value.strip() if isinstance(value, str) else ""
    with suppress(ValueError, RecursionError):
        return json.loads(text) if text[:1] in ("[", "{") else value
    with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        # Python takes ['a' 'b'], as NumPy writes two texts, for one text.
        return found if repr(found := ast.literal_eval(text)) == text else value
    return value


def _listing(value: Any) -> Any:
    found = of_a_cell(value)
    if isinstance(found, str):
        raise ValueError('must be a list, which a cell of a CSV file has as JSON, such as ["one", "two"]')
    return found


# A column that holds a list or a mapping.
OfACell = BeforeValidator(_listing)


KINDS: Registry[AnswerKind] = Registry("answers", "kind of answer", "restrain_openrlhf.answers", "my_kind")

register = KINDS.register
parse_kind = KINDS.parse

# A field of this type holds any kind of answer with its settings, and is parsed strictly.
AnyKind = Annotated[SerializeAsAny[AnswerKind], BeforeValidator(KINDS.of_field)]
