"""Base classes of kinds for which other kinds read: that of any such kind, and that of kinds that compare meanings."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from restrain_openrlhf.answers.kind import AnswerKind, AnyKind, Row, number_classes
from restrain_openrlhf.answers.kinds.text import Text

# Reads as the kind `text`, but leaves it to the comparison to ignore case, articles and punctuation.
AS_WRITTEN = Text(ignore_case=False, ignore_articles=False, ignore_punctuation=False)


class Delegating(AnswerKind):
    """A kind for whose rows other kinds read, compare and grade."""

    @abstractmethod
    def of(self, row: Row) -> AnswerKind:
        """The kind that reads answers to the row's prompt. Raises DataError if the row names none."""

    def check_row(self, row: Row) -> None:
        self.of(row).check_row(row)

    def check_prompt(self, text: str, row: Row) -> None:
        self.of(row).check_prompt(text, row)

    def instruction_for(self, row: Row) -> str:
        return self.of(row).instruction_for(row)

    def extract(self, response: str, row: Row) -> str | None:
        return self.of(row).extract(response, row)

    def key(self, answer: str, row: Row) -> str:
        return self.of(row).key(answer, row)

    def is_right(self, answer: str | None, gold: str, row: Row) -> bool:
        return self.of(row).is_right(answer, gold, row)

    def answer_of_gold(self, gold: str, row: Row) -> str | None:
        return self.of(row).answer_of_gold(gold, row)


class ComparedTexts(Delegating):
    """Answers are equal if the reading kind says so; `compared` decides on the other texts of a group."""

    reads: ClassVar[str] = (
        "An answer is what the kind under `read` reads. By default that is `text`: an <answer> tag, a box, what "
        'follows "Answer:" or "the answer is", or the last line.'
    )
    # `read` is part of the version.
    without_effect: ClassVar[frozenset[str]] = frozenset({"read"})

    read: AnyKind = AS_WRITTEN
    """The kind of answer that reads responses, with its settings. Answers that it takes for equal are equal, and are
    not compared again."""

    @abstractmethod
    def compared(self, texts: Sequence[str], row: Row) -> Sequence[int]:
        """A number for each of two or more different, sorted texts; equal texts have equal numbers.

        Raises a RestrainError if the comparison fails, because a guess would count as a vote.
        """

    @property
    def whole_version(self) -> str:
        return f"{self.version} ({self.read.identity})"

    def of(self, row: Row) -> AnswerKind:
        """The reading kind. Answers with different keys of it may still be equal, which `classes` decides."""
        return self.read

    def check_machine(self) -> None:
        self.read.check_machine()

    def row_columns(self) -> frozenset[str]:
        return self.columns | self.read.row_columns()

    def graded_columns(self) -> frozenset[str]:
        return self.gold_columns | self.read.graded_columns()

    def classes(self, answers: Sequence[str | None], row: Row) -> list[int | None]:
        """Each key is compared by the first of its texts in sorted order. Raises the errors of `compared`."""
        keys = [None if answer is None else self.key(answer, row) for answer in answers]
        written: dict[str, str] = {}
        for key, answer in zip(keys, answers, strict=True):
            if key is not None and answer is not None:
                written[key] = min(answer, written.get(key, answer))
        texts = sorted(set(written.values()))
        numbers = self.compared(texts, row) if len(texts) > 1 else [0] * len(texts)
        found = dict(zip(texts, numbers, strict=True))
        return number_classes([None if key is None else found[written[key]] for key in keys])

    def is_right(self, answer: str | None, gold: str, row: Row) -> bool:
        """Whether the reading kind says that the answer is right, or answer and gold alone are compared as equal."""
        if super().is_right(answer, gold, row):
            return True
        first, second = self.classes([answer, self.answer_of_gold(gold, row)], row)
        return first is not None and first == second
