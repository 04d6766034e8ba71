"""Mathematics: the last box, an announced answer, or the last formula, choice or number, compared by value.

Votes compare keys. The only grader of mathematics, as lenient as Qwen2.5-Math's, is never used to vote.
"""

import re
from functools import lru_cache
from typing import ClassVar, Literal

from restrain_openrlhf.answers.clean import clean
from restrain_openrlhf.answers.extract import EXTRACTOR_VERSION, extract
from restrain_openrlhf.answers.keys import canonical_key
from restrain_openrlhf.answers.kind import AnswerKind, Row, register
from restrain_openrlhf.answers.plain_text import is_plain, is_statement
from restrain_openrlhf.answers.relations import assignment
from restrain_openrlhf.answers.residual import refuse_missing_library
from restrain_openrlhf.answers.structure import bracketed, split_top_level, with_commas
from restrain_openrlhf.answers.value import CONTEXT, Value, real_number

# Raise it when extraction or equality in evaluation changes. Results record the version that made them.
GRADER_VERSION = "2"
RELATIVE_TOLERANCE = 1e-4
MATRIX = re.compile(r"\\begin\{[pb]matrix\}(.*?)\\end\{[pb]matrix\}", re.S)


@register
class Mathematics(AnswerKind):
    """Mathematical answers, the default. docs/concepts/answers.md says which are equal."""

    version: ClassVar[str] = EXTRACTOR_VERSION
    is_plain: ClassVar[bool] = True
    has_words: ClassVar[bool] = False
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

    def refuse_missing_packages(self) -> None:
        refuse_missing_library()

    def extract(self, response: str, row: Row) -> str | None:
        return extract(response)

    def key(self, answer: str, row: Row) -> str:
        return canonical_key(answer)

    def is_right(self, answer: str | None, gold: str, row: Row) -> bool:
        return is_right(answer, gold)


MATHEMATICS = Mathematics()


# Cached, because steps visit prompts again and rollouts repeat answers.
@lru_cache(maxsize=1 << 18)
def is_right(answer: str | None, gold: str) -> bool:
    """Whether an answer is right by any of RULES, for every accuracy and gold reward (docs/concepts/answers.md).

    A missing answer is wrong.
    """
    return answer is not None and any(rule(answer, gold) for rule in RULES)


def same_key(prediction: str, reference: str) -> bool:
    """Whether both have the same key, as in a vote."""
    return canonical_key(prediction) == canonical_key(reference)


def same_choice(prediction: str, reference: str) -> bool:
    """Whether the reference is one letter A to E, and the prediction's last such letter is the same."""
    letters = re.findall(r"\b([A-E])\b", prediction.upper())
    return bool(re.fullmatch(r"[A-E]", reference.strip())) and letters[-1:] == [reference.strip()]


def close_numbers(prediction: str, reference: str) -> bool:
    """Whether numbers agree to a relative 1e-4, where the reference may also be multiplied or divided by 100."""
    one, other = _number(prediction), _number(reference)
    if one is None or other is None:
        return False
    candidates = (other, other / 100, other * 100) if CONTEXT.isfinite(one) else ()
    return any(abs(one - each) <= RELATIVE_TOLERANCE * max(abs(one), abs(each)) for each in candidates)


def close_items(prediction: str, reference: str) -> bool:
    """Whether lists, tuples, intervals, sets or matrices agree item by item; the kind of bracket may differ."""
    one, other = _items(prediction), _items(reference)
    if one is None or other is None or len(one) != len(other):
        return False
    return all(same_key(a, b) or close_numbers(a, b) for a, b in zip(one, other, strict=True))


def _items(answer: str) -> list[str] | None:
    text = clean(answer)
    matrix = MATRIX.fullmatch(text)
    if matrix:
        return [cell for row in re.split(r"\\\\", matrix[1]) if row.strip() for cell in row.split("&")]
    found = bracketed(text)
    items = split_top_level(with_commas(found.inside if found else text), (",", ";"))
    if len(items) < 2:  # noqa: PLR2004 - a list has two items
        return None
    return sorted(items, key=canonical_key) if found and found.opening == "\\{" else items


def _number(answer: str) -> Value | None:
    """The real number, or that of an assignment's value; None for anything else, such as ±2."""
    text = with_commas(clean(answer))
    named = assignment(text)
    value_text = named.value if named else text
    if is_statement(answer) or is_plain(value_text) or re.search(r"\\(?:pm|mp)(?![a-zA-Z])", value_text):
        return None
    return real_number(value_text)


RULES = (same_key, same_choice, close_numbers, close_items)
