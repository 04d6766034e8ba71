"""JSON: the last object or array of a response, compared whole or by chosen keys, and checked by a schema."""

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, field_validator

from restrain_openrlhf.answers.extract import last_boxes
from restrain_openrlhf.answers.kind import PROBLEM, AnswerKind, Row, read_columns, register
from restrain_openrlhf.errors import ConfigError, DataError, reason_of

# The longest and deepest answer, and the longest number in it, so that no limit of Python is met.
LONGEST, DEEPEST, LONGEST_NUMBER = 100_000, 100, 1000
# How many brackets that close nothing are skipped, from the end.
_UNOPENED = 5
_FENCE = re.compile(r"^[ \t]*```[^\n`]*\n(?P<body>.*?)(?:^[ \t]*```|\Z)", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r'["\[\]{}]')
_OPENING = {"}": "{", "]": "["}
# What stands before a value inside a larger one that was opened and never closed.
_INSIDE = re.compile(r'(?:"\s{0,20}:|["\w\]}]\s{0,20},|[\[{])\s{0,20}\Z')


class _JsonColumns(BaseModel):
    schema_: dict[str, Any] | bool | str | None = Field(None, alias="schema")


@register
class JsonValue(AnswerKind):
    """The last JSON object or array of a response, in a code block or not. Equal values are one answer.

    The order of an object's keys and the spelling of numbers do not count: 1.0 is 1, and 1e2 is 100. JSON that is
    invalid, has a key twice, or is against the schema is no answer.
    """

    version: ClassVar[str] = "2"
    reads: ClassVar[str] = (
        "An answer is the last JSON object or array of a response. It counts as missing if it is invalid, has a key "
        "twice, lacks a chosen key, or violates the schema."
    )
    columns: ClassVar[frozenset[str]] = frozenset({"schema"})

    instruction: ClassVar[str] = "End with your answer as JSON, in a block of code."

    name: Literal["json"] = "json"
    keys: tuple[str, ...] = Field(
        (),
        description=(
            "The only values to compare, as paths with dots: `name`, `address.city`, `items.0.price`; empty: the "
            "whole answer. An answer without one of them is missing."
        ),
    )
    unordered: bool = Field(False, description="Whether the order of an array's items is ignored.")
    json_schema: dict[str, Any] | None = Field(
        None,
        description=(
            "A JSON Schema that every answer must satisfy, for rows without a column `schema`. Needs the extra `json`."
        ),
    )

    @field_validator("json_schema")
    @classmethod
    def _is_a_schema(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        if schema is not None:
            _validator(json.dumps(schema))
        return schema

    def check_row(self, row: Row) -> None:
        """Parse the row's schema."""
        if (schema := _schema_of(row, self.json_schema)) is not None:
            _keeps(schema, "null", row)

    def extract(self, response: str, row: Row) -> str | None:
        text = _last_value(response[-LONGEST:])
        return None if text is None or self._compared(text, row) is None else text

    def key(self, answer: str, row: Row) -> str:
        """The compared part in one spelling; the text itself if it is not JSON that satisfies the schema."""
        compared = self._compared(answer, row)
        return f"text {answer}" if compared is None else compared

    def is_right(self, answer: str | None, gold: str, row: Row) -> bool:
        """Raises DataError if gold is not JSON, lacks a chosen key, or violates the schema."""
        right = self._compared(gold, row)
        if right is None:
            raise DataError(
                f"The gold answer {gold[:80]!r} of the prompt {str(row.get(PROBLEM))[:60]!r} is not JSON that has the "
                "chosen keys and satisfies the schema. Correct it, or choose another kind of answer."
            )
        return answer is not None and self._compared(answer, row) == right

    def _compared(self, text: str, row: Row) -> str | None:
        """The chosen parts of a value in one spelling; None if the text is not such a value."""
        try:
            value = parse(text)
            parts = [_at(value, path.split(".")) for path in self.keys] or [value]
        except (ValueError, LookupError):
            return None
        schema = _schema_of(row, self.json_schema)
        if schema is not None and not _keeps(schema, text, row):
            return None
        return "\n".join(_spelled(part, self.unordered) for part in parts)


def parse(text: str) -> Any:
    """A JSON value with Decimals as numbers. Raises ValueError if it is invalid, ambiguous or too large."""
    if len(text) > LONGEST or _depth(text) > DEEPEST:
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


def _depth(text: str) -> int:
    """How deep arrays and objects are nested, by the brackets outside of strings."""
    deepest = depth = 0
    for mark in re.finditer(r'"(?:[^"\\]|\\.)*(?:"|\Z)|[\[{]|[\]}]', text, re.DOTALL):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(mark[0], 0)
        deepest = max(deepest, depth)
    return deepest


def _at(value: Any, path: list[str]) -> Any:
    """The value at a path. Raises LookupError or ValueError if there is none."""
    for step in path:
        if isinstance(value, dict):
            value = value[step]
        elif isinstance(value, list) and step.isdecimal():
            value = value[int(step)]
        else:
            raise LookupError(step)
    return value


def _spelled(value: Any, unordered: bool) -> str:
    """A value as text; equal values have equal texts."""
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)}:{_spelled(inner, unordered)}" for key, inner in sorted(value.items()))
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        items = [_spelled(item, unordered) for item in value]
        return "[" + ",".join(sorted(items) if unordered else items) + "]"
    return _spelled_number(value) if isinstance(value, Decimal) else json.dumps(value)


def _spelled_number(value: Decimal) -> str:
    """The digits without zeros at both ends, and the power of ten: 1.50 is 15e-1."""
    sign, digits, exponent = value.as_tuple()
    written = "".join(map(str, digits)).lstrip("0")
    bare = written.rstrip("0")
    assert isinstance(exponent, int), "JSON has no infinity"
    return f"{'-' if sign else ''}{bare}e{exponent + len(written) - len(bare)}" if bare else "0"


def _last_value(text: str) -> str | None:
    """The last object or array: the last fence or box that begins like one, or else the last bare one."""
    fences = (found["body"].strip() for found in reversed(list(_FENCE.finditer(text))))
    for inside in (*fences, (last_boxes(text) or "").strip()):
        if inside.startswith(("{", "[")):
            return inside
    return _last_bare(text)


def _last_bare(text: str) -> str | None:
    """The last text between matching brackets that is JSON. Within brackets that are not JSON nothing is searched.

    None if a later text in brackets looks like an object with strings but is not JSON, or if the value is part of a
    larger one that is never closed, because those were meant as the answer.
    """
    end, unopened, backwards = len(text), 0, text[::-1]
    while unopened < _UNOPENED and (end := max(text.rfind("}", 0, end), text.rfind("]", 0, end))) >= 0:
        start = _opening(text, backwards, end)
        if start is None:
            unopened += 1
            continue
        span = text[start : end + 1]
        if _is_json(span):
            return None if _is_a_fragment(text, backwards, start) else span
        if span.startswith("{") and '"' in span:
            return None
        end = start
    return None


def _opening(text: str, backwards: str, end: int) -> int | None:
    """The place of the bracket that the one at `end` closes; None if there is none."""
    expected: list[str] = []
    for place in _brackets_before(text, backwards, end + 1):
        mark = text[place]
        if mark in _OPENING:
            expected.append(_OPENING[mark])
        elif mark != expected.pop():
            return None
        elif not expected:
            return place
    return None


def _brackets_before(text: str, backwards: str, end: int) -> Iterator[int]:
    """Places of brackets outside of strings before `end`, the last first. `backwards` is the text, reversed once."""
    in_string = False
    for found in _MARK.finditer(backwards, len(text) - end):
        place = len(text) - 1 - found.start()
        if found[0] == '"':
            in_string ^= not _is_escaped(text, place)
        elif not in_string:
            yield place


def _is_escaped(text: str, place: int) -> bool:
    """Whether an odd number of backslashes precedes a place."""
    if place == 0 or text[place - 1] != "\\":
        return False
    before = text[max(place - LONGEST_NUMBER, 0) : place]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _is_json(span: str) -> bool:
    try:
        parse(span)
    except ValueError:
        return False
    return True


def _is_a_fragment(text: str, backwards: str, start: int) -> bool:
    """Whether a value is inside a larger one that was opened and never closed."""
    if not _INSIDE.search(text[max(start - 100, 0) : start]):
        return False
    depth = 0
    for place in _brackets_before(text, backwards, start):
        depth += 1 if text[place] in _OPENING else -1
        if depth < 0:
            return True
    return False


def _schema_of(row: Row, setting: dict[str, Any] | None) -> str | None:
    """The schema as text: that of the row, which may be text already, or else of the setting."""
    column = read_columns(_JsonColumns, row).schema_ if row.get("schema") is not None else setting
    return column if column is None or isinstance(column, str) else json.dumps(column, sort_keys=True)


def _keeps(schema: str, text: str, row: Row) -> bool:
    """Whether a value satisfies a schema. Raises DataError if the row's schema is invalid."""
    try:
        return _is_valid(schema, json.loads(text))
    except ValueError as error:
        raise DataError(
            f"The JSON Schema of the prompt {str(row.get(PROBLEM))[:60]!r} cannot be used: {reason_of(error)}. "
            "Correct its column `schema` or the setting `json_schema`."
        ) from None


def _is_valid(schema: str, value: Any) -> bool:
    validator = _validator(schema)
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - comes with jsonschema

    try:
        return bool(validator.is_valid(value))
    except Unresolvable as error:
        raise ValueError(f"it refers to something outside itself ({reason_of(error)})") from None


@lru_cache(maxsize=1000)
def _validator(schema: str) -> Any:
    """A schema's validator, which does not use the network. Raises ValueError if the text is no schema."""
    try:
        from jsonschema.exceptions import SchemaError  # noqa: PLC0415 - optional
        from jsonschema.validators import Draft202012Validator, validator_for  # noqa: PLC0415
        from referencing import Registry  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            f"A schema needs jsonschema, which cannot be imported ({reason_of(error)}). Install it with `pip install "
            "restrain-openrlhf[json]`, or leave the schema out."
        ) from error
    parsed = json.loads(schema)
    chosen = validator_for(parsed, default=Draft202012Validator)
    try:
        chosen.check_schema(parsed)
    except SchemaError as error:
        raise ValueError(f"it is not a valid JSON Schema: {error.message}") from None
    return chosen(parsed, registry=Registry())
