"""Numbers: the value that a response states, equal within a tolerance, in the row's unit if it has one."""

import re
from bisect import bisect_right
from collections.abc import Sequence, Set
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field

from restrain_openrlhf.answers import words
from restrain_openrlhf.answers.extract import MAX_ANSWER, WINDOW
from restrain_openrlhf.answers.kind import PROBLEM, AnswerKind, Row, number_classes, read_columns, register
from restrain_openrlhf.answers.kinds import reading, units
from restrain_openrlhf.answers.kinds.number_text import has_digit, of_prose, one_number, with_words
from restrain_openrlhf.answers.numerals import NUMBER, in_plain_signs, value_of
from restrain_openrlhf.errors import DataError

# Thousands or kelvin, millions or metres: ambiguous without a unit.
_SUFFIX = re.compile(r"(?:[kKMB]|bn|mn)\b")
# A number whose comma is a decimal mark or separates a list.
_COMMA = re.compile(r"(?<![\w.,(\[{])(?:\d{1,3}(?:\.\d{3})+|\d{1,400}),\d{1,400}(?![,.]?\d|[)\]}])")
# The longest unit, and words after a number that are no unit: 5 in total, 20 at most.
_LONGEST_UNIT = 60
_NO_UNITS = frozenset("a an as at are be by for from in is it of on or so the to".split())


class _NumberColumns(BaseModel):
    unit: str | None = None


@register
class Number(AnswerKind):
    """One number, equal within a tolerance, in the unit of the row or of the setting if there is one.

    A vote sorts the values and goes through them once: a class is every value within the tolerance of its smallest.
    Whole and decimal numbers, fractions, powers of ten, thousands and words such as million are read. Without a unit,
    what stands around the number is not read.
    """

    version: ClassVar[str] = "10"
    is_plain: ClassVar[bool] = True
    has_words: ClassVar[bool] = False
    reads: ClassVar[str] = (
        'An answer is one number in a tag, in a box or after "the answer is", or the last number of a sentence. '
        "A list, a range, a bound, a sum, a root, or a number with a unit of another dimension is no answer, and a "
        "last line is not read where a tag, a box or an announcement on it has no number."
    )
    columns: ClassVar[frozenset[str]] = frozenset({"unit"})

    instruction: ClassVar[str] = 'End with "The answer is" and one number, with its unit if it has one.'

    name: Literal["number"] = "number"
    relative: Annotated[float, Field(ge=0, lt=1)] = 1e-4
    """Relative tolerance: equal numbers differ by at most this share of the smaller one, or of gold."""
    absolute: Annotated[float, Field(ge=0)] = 0.0
    """Absolute tolerance: numbers that differ by at most this are equal, in the unit if there is one."""
    unit: str | None = None
    """The unit of the answers of rows without a column `unit`, in Pint's spelling: km, m/s^2, degC, percent. A number
    without a unit is read in this one."""

    def extract(self, response: str, row: Row) -> str | None:
        unit = self._unit(row)
        text = words.with_point(response[-WINDOW:])
        for span in reading.stated(text):
            plain = with_words(reading.first_sentence(reading.bare(span[:MAX_ANSWER])))
            if has_digit(plain):
                return _checked(one_number(plain), unit) or _undecided(plain, unit)
        line = reading.last_line(text)
        # The response says that something other than a number is the answer.
        if next(chain(reading.enclosed(text), reading.announcements(line, reading.ANSWER)), None) is not None:
            return None
        found = of_prose(text[-MAX_ANSWER:], str(row.get(PROBLEM) or ""))
        return _checked(found, unit) or _undecided(in_plain_signs(line[-MAX_ANSWER:]), unit)

    def key(self, answer: str, row: Row) -> str:
        """The value in the unit, as a whole number or a fraction; the text itself if it has no value."""
        unit = self._unit(row)
        value = _value(answer, unit)
        return f"text {answer}" if value is None else f"{value} {unit or ''}".strip()

    def classes(self, answers: Sequence[str | None], row: Row) -> list[int | None]:
        """A class has the values within the tolerance of its smallest one, so no two of them differ by more.

        A comma is a decimal one where the number then equals another answer: `3,5` beside `3.5`.
        """
        unit = self._unit(row)
        known = {value for answer in answers if answer is not None and (value := _value(answer, unit)) is not None}
        values = {answer: self._beside(known, answer, unit) for answer in answers if answer is not None}
        first: list[Fraction] = []
        for value in sorted({value for value in values.values() if value is not None}):
            if not first or value - first[-1] > self._tolerance(first[-1]):
                first.append(value)
        keys = {
            answer: f"text {answer}" if value is None else bisect_right(first, value)
            for answer, value in values.items()
        }
        return number_classes([None if answer is None else keys[answer] for answer in answers])

    def alike(self, keys: Sequence[str | None]) -> list[int | None]:
        """As `classes`, which read a key as an answer, among the values in one unit."""
        return self._alike_by_part(
            keys,
            lambda key: "" if key.startswith("text ") else key.partition(" ")[2],
            lambda unit, own: self.classes(own, {"unit": unit or None}),
        )

    def is_right(self, answer: str | None, gold: str, row: Row) -> bool:
        """Whether it is within the tolerance of gold. Raises DataError if gold is no number of the unit's dimension."""
        unit = self._unit(row)
        right = _value(gold, unit)
        if right is None:
            raise DataError(
                f"The gold answer {gold[:80]!r} of the prompt {str(row.get(PROBLEM))[:60]!r} is not a single "
                f"number{f' in {unit}' if unit else ''}. Correct it, or choose another kind of answer."
            )
        value = None if answer is None else self._beside({right}, answer, unit)
        return value is not None and abs(value - right) <= self._tolerance(right)

    def _beside(self, others: Set[Fraction], answer: str, unit: str | None) -> Fraction | None:
        """The answer's value; with a decimal comma where that is one of the others."""
        value, by_comma = _value(answer, unit), _value(answer.replace(",", ".", 1), unit)
        if value is not None or by_comma is None:
            return value
        return by_comma if any(abs(by_comma - other) <= self._tolerance(other) for other in others) else None

    def _tolerance(self, value: Fraction) -> Fraction:
        return max(_exact(self.absolute), _exact(self.relative) * abs(value))

    def check_machine(self) -> None:
        """Load Pint if the settings name a unit."""
        self._unit({})

    def _unit(self, row: Row) -> str | None:
        unit = (read_columns(_NumberColumns, row).unit if row.get("unit") is not None else None) or self.unit
        if unit is not None:
            units.check(unit)
        return unit


def _exact(setting: float) -> Fraction:
    """A setting's exact decimal value: 0.1 is one tenth."""
    return Fraction(Decimal(repr(setting)))


def _undecided(text: str, unit: str | None) -> str | None:
    """The only number of a text, if it has a comma that no language decides on, with that as its only mark."""
    pointed, count = _COMMA.subn(lambda found: found[0].replace(".", "").replace(",", "."), text)
    is_only = count == 1 and len(NUMBER.findall(pointed)) == 1
    answer = _checked(one_number(pointed), unit) if is_only else None
    return answer and answer.replace(".", ",", 1)


def _checked(answer: str | None, unit: str | None) -> str | None:
    """The answer without the words after it; None if it has no value in the unit."""
    if answer is None or _value(answer, unit) is None:
        return None
    number, written = _split(answer, unit)
    return f"{number[0].strip().removesuffix('.')} {written}".strip()


@lru_cache(maxsize=10_000)
def _value(answer: str, unit: str | None) -> Fraction | None:
    """The answer's value, in the unit if there is one; None if it has none."""
    text = one_number(with_words(answer[:MAX_ANSWER]))
    if text is None:
        return None
    number, written = _split(text, unit)
    value = None if unit is None and _SUFFIX.match(text, number.end()) else value_of(number)
    return value if value is None or unit is None or not written else units.convert(value, written, unit)


def _split(text: str, unit: str | None) -> tuple[re.Match[str], str]:
    """The number at the start of a text, and the unit after it; empty if no unit is asked for or known."""
    number = NUMBER.match(text)
    assert number, "an answer begins with its number"
    return number, "" if unit is None else _unit_after(text[number.end() :])


def _unit_after(rest: str) -> str:
    """The longest known unit at the start of the text after a number."""
    rest = rest[:_LONGEST_UNIT].strip()
    ends = [found.start() for found in re.finditer(r"(?=\s|[.,;)]*(?:\s|\Z))", rest)]
    for end in sorted(set(ends), reverse=True):
        written = rest[:end].rstrip(" .,;)")
        words = written.lower().split()
        is_all = len(words) == 1 and not rest[end:].strip(" .")
        if words and (is_all or not _NO_UNITS.intersection(words)) and units.is_unit(written):
            return written
    return ""
