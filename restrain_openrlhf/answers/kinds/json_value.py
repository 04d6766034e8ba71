"""JSON: the last object or array of a response, compared whole or by chosen keys."""

import json
import re
from collections.abc import Iterator
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Any, ClassVar, Literal

from restrain_openrlhf.answers.extract import last_boxes
from restrain_openrlhf.answers.kind import PROBLEM, AnswerKind, Row, register
from restrain_openrlhf.errors import DataError

# The longest and deepest answer, and the longest number in it, so that no limit of Python is met.
LONGEST, DEEPEST, LONGEST_NUMBER = 100_000, 100, 1000
_FENCE = re.compile(r"^[ \t]*```[^\n`]*\n(?P<body>.*?)(?:^[ \t]*```|\Z)", re.MULTILINE | re.DOTALL)
_OPENING = re.compile(r"[{\[]")
# What is meant as an object, and not as a set such as {x, y}.
_OBJECT = re.compile(r'\{\s{0,99}"')
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\Z)|[\[\]{}]', re.DOTALL)
_DEEPER = {"[": 1, "{": 1, "]": -1, "}": -1}
_DECODER = json.JSONDecoder()
# Arithmetic that rounds no number of an answer.
_EXACT = Context(prec=LONGEST_NUMBER, Emax=MAX_EMAX, Emin=MIN_EMIN)
# How many brackets of a hostile text are tried.
_MOST_VALUES = 5000


@register
class JsonValue(AnswerKind):
    """The last JSON object or array of a response, in a code block or not. Equal values are one answer.

    The order of an object's keys and the spelling of numbers do not count: 1.0 is 1, and 1e2 is 100. JSON that is
    invalid or has a key twice is no answer.
    """

    version: ClassVar[str] = "3"
    reads: ClassVar[str] = (
        "An answer is the last JSON object or array of a response. It counts as missing if it is invalid, has a key "
        "twice, or lacks a chosen key."
    )
    instruction: ClassVar[str] = "End with your answer as JSON, in a block of code."

    name: Literal["json"] = "json"
    keys: tuple[str, ...] = ()
    """The only values to compare, as paths with dots: `name`, `address.city`, `items.0.price`; empty: the whole answer.
    An answer without one of them is missing."""
    unordered: bool = False
    """Whether the order of an array's items is ignored."""

    def extract(self, response: str, row: Row) -> str | None:
        text = _last_value(response[-LONGEST:])
        return None if text is None or self._compared(text) is None else text

    def key(self, answer: str, row: Row) -> str:
        """The compared part in one spelling; the text itself if it is not JSON with the chosen keys."""
        compared = self._compared(answer)
        return f"text {answer}" if compared is None else compared

    def is_right(self, answer: str | None, gold: str, row: Row) -> bool:
        """Raises DataError if gold is not JSON, or lacks a chosen key."""
        right = self._compared(gold)
        if right is None:
            raise DataError(
                f"The gold answer {gold[:80]!r} of the prompt {str(row.get(PROBLEM))[:60]!r} is not JSON that has the "
                "chosen keys. Correct it, or choose another kind of answer."
            )
        return answer is not None and self._compared(answer) == right

    def _compared(self, text: str) -> str | None:
        """The chosen parts of a value in one spelling; None if the text is not such a value."""
        try:
            value = parse(text)
            parts = [_at(value, path.split(".")) for path in self.keys] or [value]
        except (ValueError, LookupError, TypeError):
            return None
        return "\n".join(_spelled(part, self.unordered) for part in parts)


def parse(text: str) -> Any:
    """A JSON value with Decimals as numbers. Raises ValueError if it is invalid, ambiguous or too large."""
    if len(text) > LONGEST or max((depth for _, depth in _nesting(text, 0)), default=0) > DEEPEST:
        raise ValueError("too long, or too deep")
    return json.loads(text, object_pairs_hook=_object, parse_int=_number, parse_float=_number, parse_constant=_refuse)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _number(digits: str) -> Decimal:
    if len(digits) > LONGEST_NUMBER:
        raise ValueError("too long a number")
    try:
        return Decimal(digits)
    except ArithmeticError as error:
        raise ValueError("too large an exponent") from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _at(value: Any, path: list[str]) -> Any:
    """The value at a path. Raises LookupError, ValueError or TypeError if there is none."""
    for step in path:
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


def _spelled(value: Any, unordered: bool) -> str:
    """A value as text; equal values have equal texts."""
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)}:{_spelled(inner, unordered)}" for key, inner in sorted(value.items()))
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        items = [_spelled(item, unordered) for item in value]
        return "[" + ",".join(sorted(items) if unordered else items) + "]"
    if isinstance(value, Decimal):
        return str(_EXACT.normalize(value)) if value else "0"
    return json.dumps(value)


def _last_value(text: str) -> str | None:
    """The last object or array: the last fence or box that begins like one, or else the last bare one."""
    fences = (found["body"].strip() for found in reversed(list(_FENCE.finditer(text))))
    for inside in (*fences, (last_boxes(text) or "").strip()):
        if inside.startswith(("{", "[")):
            return inside
    return _last_bare(text)


def _last_bare(text: str) -> str | None:
    """The last object or array that is not a part of another.

    None if a later object is broken, or a later value never closed, because those were meant as the answer.
    """
    found, place = None, 0
    for _ in range(_MOST_VALUES):
        opening = _OPENING.search(text, place)
        if opening is None:
            return found
        start = opening.start()
        try:
            _, place = _DECODER.raw_decode(text, start)
            found = text[start:place]
        except (json.JSONDecodeError, RecursionError) as error:
            broken = max(getattr(error, "pos", len(text)), start + 1)
            found, place = (None, _closing(text, start)) if _OBJECT.match(text, start) else (found, broken)
            if place >= len(text):
                return None
    return None


def _closing(text: str, start: int) -> int:
    """The place after the bracket that closes the one at `start`; the end of the text if there is none."""
    return next((end for end, depth in _nesting(text, start) if not depth), len(text))


def _nesting(text: str, start: int) -> Iterator[tuple[int, int]]:
    """Each string and bracket from `start` on: the place after it, and how many brackets are open there."""
    depth = 0
    for found in _STRING_OR_BRACKET.finditer(text, start):
        depth += _DEEPER.get(found[0], 0)
        yield found.end(), depth
