"""Mathematics: the last box, an announced answer, or the last formula, choice or number, compared by value."""

from typing import ClassVar, Literal

from restrain_openrlhf.answers import gold as grader
from restrain_openrlhf.answers.extract import EXTRACTOR_VERSION, extract
from restrain_openrlhf.answers.keys import canonical_key
from restrain_openrlhf.answers.kind import AnswerKind, Row, register


@register
class Mathematics(AnswerKind):
    """Mathematical answers, the default. docs/concepts/answers.md says which are equal."""

    version: ClassVar[str] = EXTRACTOR_VERSION
    reads: ClassVar[str] = (
        'An answer is a box, what follows "the answer is", a last formula, choice or number; code, JSON and SQL have '
        "none."
    )
    advice: ClassVar[str] = (
        "ask for a box in the prompts' template, allow longer responses, or choose another kind of answer for prompts "
        "that are not mathematics (`answers:`, docs/concepts/kinds.md)."
    )

    instruction: ClassVar[str] = r"Please reason step by step, and put your final answer within \boxed{}."

    name: Literal["math"] = "math"

    def extract(self, response: str, row: Row) -> str | None:
        return extract(response)

    def key(self, answer: str, row: Row) -> str:
        return canonical_key(answer)

    def is_right(self, answer: str | None, gold: str, row: Row) -> bool:
        return grader.is_right(answer, gold)


MATHEMATICS = Mathematics()
