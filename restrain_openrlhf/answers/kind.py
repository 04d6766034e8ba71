"""A kind of answer: what a response answers, which answers are equal, and what is right; chosen by its name."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, SerializeAsAny, ValidationError

from restrain_openrlhf.errors import DataError
from restrain_openrlhf.registry import Registry

# A prompt's own data, as its data set has them: `problem`, and the columns that its kind of answer reads.
Row = Mapping[str, Any]
PROBLEM = "problem"

Columns = TypeVar("Columns", bound=BaseModel)


class AnswerKind(BaseModel, ABC):
    """One kind of answer: its settings are its fields, and each is a file in `kinds/`.

    `version` is in the provenance of everything that was made with this kind: raise it where the same response would
    get another answer, or the same answers other classes. `columns` are the columns of a row that the kind reads
    besides `problem`; gold is never one of them. `reads` says in one sentence what counts as an answer, for the warning
    where many responses have none. `of_the_machine` are settings that change how an answer is found, and not which.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: ClassVar[str]
    reads: ClassVar[str]
    columns: ClassVar[frozenset[str]] = frozenset()
    of_the_machine: ClassVar[frozenset[str]] = frozenset()

    name: str

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
        """Evaluation's rule; a missing answer is wrong. It may be more lenient than a vote."""
        return answer is not None and self.key(answer, row) == self.key(gold, row)

    @property
    def identity(self) -> str:
        """Name, version, and the settings that differ from the defaults; equal where answers are read alike."""
        changed = self.model_dump(mode="json", exclude_defaults=True, exclude={"name", *self.of_the_machine})
        settings = "".join(f" {key}={value!r}" for key, value in sorted(changed.items()))
        return f"{self.name} {self.version}{settings}"


def number_classes(keys: Sequence[str | None]) -> list[int | None]:
    """Equal keys get one number, in order of first appearance; None stays None."""
    numbers: dict[str, int] = {}
    return [None if key is None else numbers.setdefault(key, len(numbers)) for key in keys]


def read_columns(model: type[Columns], row: Row) -> Columns:
    """The row's columns as the `model` types them. Raises DataError naming the column, what it holds, and the fix."""
    try:
        return model.model_validate(dict(row))
    except ValidationError as error:
        first = error.errors()[0]
        column = ".".join(map(str, first["loc"]))
        shown = repr(first["input"])[:80]
        raise DataError(
            f"The prompt {str(row.get(PROBLEM))[:60]!r} has {shown} for its column {column!r}: {first['msg']}. Correct "
            "the column in the prompts' file, or choose another kind of answer."
        ) from None


KINDS: Registry[AnswerKind] = Registry("answers", "kind of answer", "restrain_openrlhf.answers", "my_kind")

register = KINDS.register
parse_kind = KINDS.parse

# A field of this type holds any kind of answer with its settings, and is parsed strictly.
AnyKind = Annotated[SerializeAsAny[AnswerKind], BeforeValidator(KINDS.validator(AnswerKind))]
