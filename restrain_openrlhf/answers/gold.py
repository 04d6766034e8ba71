"""The one grader: what counts as right, as lenient as Qwen2.5-Math's grader; never used to vote."""

import re
from functools import lru_cache

from restrain_openrlhf.answers.clean import clean
from restrain_openrlhf.answers.keys import canonical_key
from restrain_openrlhf.answers.plain_text import is_plain, is_statement
from restrain_openrlhf.answers.relations import assignment
from restrain_openrlhf.answers.structure import bracketed, split_top_level, with_commas
from restrain_openrlhf.answers.value import CONTEXT, Value, real_number

# Raised when extraction or equality in evaluation changes; results say by which they were made.
GRADER_VERSION = "1"
RELATIVE_TOLERANCE = 1e-4
MATRIX = re.compile(r"\\begin\{[pb]matrix\}(.*?)\\end\{[pb]matrix\}", re.S)


# Steps visit the same prompts again, and rollouts repeat answers.
@lru_cache(maxsize=1 << 18)
def is_right(answer: str | None, gold: str) -> bool:
    """The one rule behind every accuracy and every gold reward: right by any of RULES (docs/concepts/answers.md).

    A missing answer is wrong.
    """
    return answer is not None and any(rule(answer, gold) for rule in RULES)


def same_key(prediction: str, reference: str) -> bool:
    """Equal by the vote's own key."""
    return canonical_key(prediction) == canonical_key(reference)


def same_choice(prediction: str, reference: str) -> bool:
    """The reference is one letter A to E, and the prediction's last such letter is it."""
    letters = re.findall(r"\b([A-E])\b", prediction.upper())
    return bool(re.fullmatch(r"[A-E]", reference.strip())) and letters[-1:] == [reference.strip()]


def close_numbers(prediction: str, reference: str) -> bool:
    """Numbers within a relative tolerance of 1e-4, the reference also taken a hundredfold or as per cent."""
    one, other = _number(prediction), _number(reference)
    if one is None or other is None:
        return False
    return any(_close(one, candidate) for candidate in (other, other / 100, other * 100))


def close_items(prediction: str, reference: str) -> bool:
    """Lists, tuples, intervals, sets and matrices, right item by item; the kind of bracket may differ."""
    one, other = _items(prediction), _items(reference)
    if one is None or other is None or len(one) != len(other):
        return False
    return all(_item(a, b) for a, b in zip(one, other, strict=True))


def _item(prediction: str, reference: str) -> bool:
    return same_key(prediction, reference) or close_numbers(prediction, reference)


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
    """A real number, the value of an assignment taken for it; one of two signs is no number."""
    text = with_commas(clean(answer))
    named = assignment(text)
    value_text = named.value if named else text
    if is_statement(answer) or is_plain(value_text) or re.search(r"\\(?:pm|mp)(?![a-zA-Z])", value_text):
        return None
    return real_number(value_text)


def _close(one: Value, other: Value) -> bool:
    return bool(abs(one - other) <= RELATIVE_TOLERANCE * max(abs(one), abs(other)) or one == other) and bool(
        CONTEXT.isfinite(one)
    )


RULES = (same_key, same_choice, close_numbers, close_items)
