"""Numbers: the value that a response states, equal within a tolerance, in the row's unit if it has one."""

import re
from bisect import bisect_right
from collections.abc import Sequence, Set
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import chain, pairwise
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field

from restrain_openrlhf.answers import numerals, words
from restrain_openrlhf.answers.extract import MAX_ANSWER, RULED_OUT, SHORT, WINDOW
from restrain_openrlhf.answers.kind import PROBLEM, AnswerKind, Row, number_classes, read_columns, register
from restrain_openrlhf.answers.kinds import reading, units
from restrain_openrlhf.answers.numerals import NUMBER, Neighbours, in_plain_signs, next_word, value_of
from restrain_openrlhf.errors import DataError

# Signs that the number is part of something larger: √2, 2+3, x/4, 2^10, 2π, 2½, 0.(3), 2 thousand million.
_PART_AFTER = re.compile(
    r"(?:√|±|\}\s?\{|\\(?:overline|binom)\s?\{|\d\.\(|\d\s?\*\*|[\w)}π]/|[\w)}π]\s?[+*×·⋅]"
    r"|\b(?:sqrt|log|ln|sin|cos|tan|exp)(?:_\{?\w{1,9}\}?)?|\b(?:divided|multiplied)\sby"
    r"|\bmultiple\sof|_)\s?[({]?\Z"
)
_PART_BEFORE = re.compile(
    rf"\.?\(\d|\*\*\d|[{numerals.RAISED}]|[+*×·⋅][A-Za-z]|\s?[≠≤≥]|\s?[<>]\s?[A-Za-z]\b(?!>)|\s{{0,2}}{words.NOT}"
    r"|\s?(?:\^|√|π|\\(?:sqrt|pi|overline)\b|[+*×·⋅]\s?[\d\\√π(])"
    rf"|\s+(?:{numerals.SCALE})s?\b|[xyz]\b|\s(?:plus|minus|times|(?:divided|multiplied)\sby)\s",
    re.IGNORECASE,
)
# The end of a term, after which a sign means addition or subtraction.
_TERM = re.compile(r"(?:\b[A-Za-z]|[)}π|]|\^-?\w{1,9})\s?\Z")
# Thousands or kelvin, millions or metres: ambiguous without a unit.
_SUFFIX = re.compile(r"(?:[kKMB]|bn|mn)\b")
# Text between two numbers that are a list, a range, a ratio, a date, or one quantity in two units.
_JOINT = re.compile(r"\s*(?:[^\W\d_]{1,12}\.?)?\s*(?:,|;|:|/|-|–|±|and|or|to|out of|of|[°'′\"])?\s*")
# A variable with two values: x = 5 or x = 6.
_TWO_VALUES = re.compile(r"\b([A-Za-z]\w?)\s?=[^=,;]{1,40}?(?:[,;]|\bor\b|\band\b)[\s\w]{0,6}?\b\1\s?=")
# What a number follows that is said of what stands before.
_SAYS = re.compile(
    r"(\b(?:is|are|was|were|be|being|equals?(?=\s)|has|have|had|gets?|costs?|makes?|gives?|needs?|yields?)\b:?(?=\s)|,\sor(?=\s)|=)\s*"
    r"(?:(?:about|approximately|actually|equal\sto|equivalent\sto|exactly|indeed|just|now|only|still|a\stotal\sof)\s+)*",
    re.IGNORECASE,
)
# The end of a sentence that breaks off (a letter or a digit ends many complete responses), an aside, a word before a
# number, and the day before a year.
_CUT_OFF = re.compile(r"[,;(+*/=-]\s*\Z")
_IN_BRACKETS = re.compile(r"(?<=[\w%])\s\([^()]*\)")
_OF = re.compile(r"([^\W\d_]+)\s+of\s+\Z")
_ASIDE, _THAT = (
    re.compile(rf"(?<=\d)[^\d=]{{0,40}}?[\s,](?:{words})\b")
    for words in (r"because|since|while|whereas|unlike|after(?=\s\w+ing\b)", "that")
)
# The noun that a question counts or asks for, words that are no noun, and what is said of those that remain.
_COUNTED = re.compile(
    r"\bhow\smany\s(?:(?:more|other|whole|total)\s)?([^\W\d_]+)|\b(?:what|which)\s(year)\b", re.IGNORECASE
)
_YEAR = re.compile(r"[12]\d{3}")
_AND_MORE = re.compile(r"\b(?:year|month|week|day|hour|minute|pound|dollar|feet)s?(?:,|,?\sand)\Z", re.IGNORECASE)
_NO_NOUN = frozenset(["", *"and by from in is or times to x".split()])
_REMAIN = re.compile(r"\s?\w+\s(?:(?:are|is|were|was|will\sbe)\s)?(?:left|remain)", re.IGNORECASE)
_WORD_BEFORE = re.compile(r"[^\W\d_]{3,}\s+\Z")
_REASON = re.compile(r"(?<=\S)[,.;]?\s+(?:because|since|as|which|so|when|if|where|for)\b")
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

    version: ClassVar[str] = "9"
    is_plain: ClassVar[bool] = True
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
            plain = _with_words(reading.first_sentence(reading.bare(span[:MAX_ANSWER])))
            if _has_digit(plain):
                return _checked(_one_number(plain), unit) or _undecided(plain, unit)
        line = reading.last_line(text)
        # The response says that something other than a number is the answer.
        if next(chain(reading.enclosed(text), reading.announcements(line, reading.ANSWER)), None) is not None:
            return None
        found = _of_prose(text[-MAX_ANSWER:], str(row.get(PROBLEM) or ""))
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


def _with_words(text: str) -> str:
    """A text in plain signs. If it has no digits, but begins with a number in words, that is in digits."""
    if _has_digit(plain := in_plain_signs(text)):
        return plain
    spelled = in_plain_signs(numerals.in_digits(text))
    return spelled if NUMBER.match(spelled) else plain


def _one_number(span: str) -> str | None:
    """The number of a stated span, with the text after it; None for a list, a range or a date."""
    plain = _REASON.split(span)[0]
    side = plain if _has_digit(plain) else span
    sides = [each for each in side.split("=")[1:] if _has_digit(each)] or reading.after_is(side)
    side = sides[-1] if sides and _has_digit(sides[-1]) else side
    return None if _TWO_VALUES.search(span) else _whole(side, list(NUMBER.finditer(side)), 0)


def _whole(text: str, numbers: Sequence[re.Match[str]], place: int) -> str | None:
    """The text from this number on; None if the number is part of an expression, a list, a range or a date."""
    beside = pairwise(numbers[max(place - 1, 0) : place + 2])
    if not numbers or any(_JOINT.fullmatch(text[one.end() : other.start()]) for one, other in beside):
        return None
    number = numbers[place]
    # The dash of "Total - 5" is no minus.
    is_dash = number[0][:2] == "- " and _WORD_BEFORE.search(text[: number.start()])
    return None if _is_part(text, number) else text[number.start() + bool(is_dash) :].strip()


def _of_prose(text: str, question: str) -> str | None:
    """What the last sentence that states a number states, with the text after it; None if that is no single number.

    A sentence is read that repeats the question, or a short one of the last line.
    """
    lines = [reading.sentences(reading.last_line(line)) for line in text.split("\n") if reading.bare(line)]
    is_one = sum(map(len, lines)) == 1
    is_cut = bool(lines) and len(lines[-1]) > 1 and _CUT_OFF.search(text) is not None
    words = frozenset[str]() if is_cut else reading.content(question)
    lines[-1:] = [lines[-1][:-1]] if is_cut else lines[-1:]
    # A number alone is stated, even if it is one of the question's.
    asked = numerals.with_neighbours(question[-WINDOW:]) if text.count(" ") else {}
    nouns = [found[found.lastindex or 0].lower() for found in _COUNTED.finditer(question[-WINDOW:])]
    for above, line in enumerate(reversed(lines)):
        for sentence in map(in_plain_signs, reversed(line)):
            is_about = reading.repeats(sentence, question)
            found = _of_counted(sentence, nouns[-1], asked) if nouns and words and (is_about or is_one) else None
            if not found and (is_about or (not above and len(sentence) <= SHORT)):
                found = _of_sentence(sentence, words, asked, is_one)
            if found is not None:
                return found or None
    return None


def _of_counted(sentence: str, noun: str, asked: Neighbours) -> str | None:
    """The number of what the question counts, or the year, if a sentence states one; with the text after it.

    The question's own number is stated anew where something remains. Beside it only numbers of other nouns may stand.
    """
    text = in_plain_signs(numerals.in_digits(_ASIDE.split(sentence)[0]))
    numbers = [*NUMBER.finditer(text), None]
    own, beside, is_year = dict[Fraction | None, str](), False, noun == "year"
    for number, after in pairwise(numbers):
        assert number, "only the last is none"
        value, following = value_of(number), next_word(number)
        phrase = text[number.start() : after.start() if after else None].strip()
        if _YEAR.fullmatch(number["value"] or "") if is_year else following == noun:
            if value not in asked or _REMAIN.match(text, number.end()):
                own[value] = "" if _is_part(text, number) or _AND_MORE.search(phrase) else phrase
        else:
            beside |= following in _NO_NOUN
    return None if len(own) != 1 or (beside and not is_year) else own.popitem()[1] or None


def _of_sentence(sentence: str, words: Set[str], asked: Neighbours, is_one: bool) -> str | None:
    """The last number that is not the question's, with the text after it; empty for a list, a sum and the like.

    It stands right after "is", "has" or "=", or beside one of the question's words, or else is the only one of the
    whole response.
    """
    if _TWO_VALUES.search(sentence):
        return ""
    sentence = _IN_BRACKETS.sub("", sentence)
    parts = ["", *_SAYS.split(_ASIDE.split(sentence)[0])]
    own, said = list[tuple[str | None, str | None, bool]](), set[str | None]()
    for mark, whole in zip(parts[::2], parts[1::2], strict=True):
        part = _with_words(_THAT.split(whole)[0]) if mark or is_one else whole
        numbers = list(NUMBER.finditer(part))
        for place, number in enumerate(numbers):
            value, around = number["value"], asked.get(value_of(number))
            is_said = bool(mark) and not part[: number.start()].strip(" *_(")
            # A question's number is said anew if it stands beside other words than there.
            if around is None or (is_said and around.isdisjoint({mark if mark == "=" else "", next_word(number)})):
                beside = {next_word(number), *_OF.findall(part[: number.start()])}
                is_placed = any(words & reading.content(word) for word in beside)
                own.append((value, _whole(part, numbers, place), is_said or is_placed))
                said = set() if mark == "=" else said | {value} if is_said and around is None else said
    is_only = is_one and len({value for value, *_ in own}) == 1
    return (own[-1][1] or "") if own and len(said) < 2 and (own[-1][2] or is_only) else None  # noqa: PLR2004


def _has_digit(text: str) -> bool:
    return any(each.isdecimal() for each in text)


def _undecided(text: str, unit: str | None) -> str | None:
    """The only number of a text, if it has a comma that no language decides on, with that as its only mark."""
    pointed, count = _COMMA.subn(lambda found: found[0].replace(".", "").replace(",", "."), text)
    is_only = count == 1 and len(NUMBER.findall(pointed)) == 1
    answer = _checked(_one_number(pointed), unit) if is_only else None
    return answer and answer.replace(".", ",", 1)


def _is_part(text: str, number: re.Match[str]) -> bool:
    """Whether the number is ruled out, or is part of a sum, a root, a power or a similar expression."""
    before = text[max(number.start() - _LONGEST_UNIT, 0) : number.start()]
    is_signed = number["sign"] and _TERM.search(before)
    after = _PART_BEFORE.match(text, number.end())
    return bool(is_signed or after or _PART_AFTER.search(before) or RULED_OUT.search(before))


def _checked(answer: str | None, unit: str | None) -> str | None:
    """The answer without the words after it; None if it has no value in the unit."""
    if answer is None or _value(answer, unit) is None:
        return None
    number, written = _split(answer, unit)
    return f"{number[0].strip().removesuffix('.')} {written}".strip()


@lru_cache(maxsize=10_000)
def _value(answer: str, unit: str | None) -> Fraction | None:
    """The answer's value, in the unit if there is one; None if it has none."""
    text = _one_number(_with_words(answer[:MAX_ANSWER]))
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
