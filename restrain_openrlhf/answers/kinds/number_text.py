"""Finds the number that a text states: in a span that is announced, or in the sentences of a response."""

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from restrain_openrlhf.answers import numerals, words
from restrain_openrlhf.answers.extract import RULED_OUT, SHORT, WINDOW
from restrain_openrlhf.answers.kinds import reading
from restrain_openrlhf.answers.numerals import NUMBER, Neighbours, in_plain_signs, next_word, value_of

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
# Text between two numbers that are a list, a range, a ratio, a date, or one quantity in two units.
_JOINT = re.compile(r"\s*(?:[^\W\d_]{1,12}\.?)?\s*(?:,|;|:|/|-|–|±|and|or|to|out of|of|[°'′\"])?\s*")
# A variable with two values: x = 5 or x = 6.
_TWO_VALUES = re.compile(r"\b([A-Za-z]\w?)\s?=[^=,;]{1,40}?(?:[,;]|\bor\b|\band\b)[\s\w]{0,6}?\b\1\s?=")
# What stands right before a number that is said.
_SAYS = re.compile(
    r"(?:\b(?:is|are|was|were|be|equals?|has|have|had|gets?|costs?|makes?|gives?):?\s|,\sor\s|(?P<equals>=))\s*"
    r"(?:(?:about|approximately|actually|equal\sto|equivalent\sto|exactly|indeed|just|now|only|still|a\stotal\sof)\s+)*"
    r"[*_(]*\Z",
    re.IGNORECASE,
)
# What stands aside: words in brackets, the dash of "Total - 5", and a reason or a contrast behind a number.
_ASIDE = re.compile(
    r"(?<=[\w%])\s\([^()]*\)|(?<=[^\W\d_]{3})\s+-(?=\s+\d)"
    r"|(\d[^\d=]{0,40}?),?\s(?:because|since|while|whereas|unlike|that)\b.*"
)
# What a question counts; what may stand between a number and its noun; and words after another number beside which the
# counted one is no whole answer: no noun at all, or a smaller unit of the same quantity (6 hours and 24 minutes).
_COUNTED = re.compile(r"\bhow\smany\s(?:(?:more|other|whole|total)\s)?([^\W\d_]+)|\b(?:what|which)\s(year)\b", re.I)
_BEFORE_NOUN = r"[\s-]?(?:(?!(?:and|or|of|in)\b)[^\W\d_]+\s)?"
_NO_NOUN = frozenset(["", *"and by from in is or times to x minutes seconds cents inches".split()])
_REMAIN = re.compile(r"\s?\w+\s(?:(?:are|is)\s)?(?:left|remain)", re.IGNORECASE)
# One of a thing, and a question that asks for one of several.
_ONE_OF = re.compile(r"\b(?:an?|one|1|each|every|per)\s([^\W\d_]{3,})", re.IGNORECASE)
_EACH = re.compile(r"\b(?:each|every|per|one)\b", re.IGNORECASE)
# The longest unit before a number that is part of an expression.
_LONGEST_UNIT = 60


def with_words(text: str) -> str:
    """A text in plain signs. If it has no digits, but begins with a number in words, that is in digits."""
    if has_digit(plain := in_plain_signs(text)):
        return plain
    spelled = in_plain_signs(numerals.in_digits(text))
    return spelled if NUMBER.match(spelled) else plain


def one_number(span: str) -> str | None:
    """The number of a stated span, with the text after it; None for a list, a range or a date."""
    plain = _ASIDE.sub(r"\1", span)
    sides = plain.split("=") if "=" in plain else [plain, *reading.after_is(plain)]
    side = next((each for each in reversed(sides) if has_digit(each)), plain)
    numbers = list(NUMBER.finditer(side))
    is_one = numbers and not _TWO_VALUES.search(plain) and _is_whole(numbers, 0)
    return side[numbers[0].start() :].strip() if is_one else None


def _is_whole(numbers: Sequence[re.Match[str]], place: int, *, is_said: bool = False) -> bool:
    """Whether the number at this place stands for itself, and not in an expression, a list, a range or a date."""
    # What is said is not joined to what stands before "is".
    beside = pairwise(numbers[place if is_said else max(place - 1, 0) : place + 2])
    is_joined = any(_JOINT.fullmatch(one.string[one.end() : other.start()]) for one, other in beside)
    return not is_joined and not _is_part(numbers[place])


def of_prose(text: str, question: str) -> str | None:
    """What the last sentence that states a number states, with the text after it; None if that is no single number.

    A sentence is read for what the question counts. One that repeats the question, or a short one of the last line, is
    also read for what it says last.
    """
    lines = [reading.sentences(reading.last_line(line)) for line in text.split("\n") if reading.bare(line)]
    is_one = sum(map(len, lines)) == 1
    # A number alone is stated, even if it is one of the question's.
    asked = numerals.with_neighbours(question[-WINDOW:]) if text.count(" ") else {}
    for above, line in enumerate(reversed(lines)):
        for sentence in reversed(line):
            if _is_of_one(sentence, question, asked):
                continue
            plain = in_plain_signs(numerals.in_digits(_ASIDE.sub(r"\1", sentence)))
            numbers = list(NUMBER.finditer(plain))
            found = _counted(numbers, question, asked)
            if found is None and (reading.repeats(sentence, question) or (not above and len(sentence) <= SHORT)):
                # A number word within a sentence, such as "one", is too often none.
                is_alone = is_one and (has_digit(sentence) or NUMBER.match(plain) is not None)
                found = "" if _TWO_VALUES.search(plain) else _said(numbers, asked, is_alone=is_alone)
            if found is not None:
                return found or None
    return None


def _is_of_one(sentence: str, question: str, asked: Neighbours) -> bool:
    """Whether a sentence speaks of one of what the question has several of, as "One kilogram is 1000 grams" does."""
    if any(value_of(each) in asked for each in NUMBER.finditer(sentence)) or _EACH.search(question):
        return False
    several = [word for value, around in asked.items() if value != 1 for word in around]
    return any(word.startswith(found[1].lower()) for found in _ONE_OF.finditer(sentence) for word in several)


def _counted(numbers: Sequence[re.Match[str]], question: str, asked: Neighbours) -> str | None:
    """The only number of the noun that the question counts last, or year that it asks for, with the text after it.

    The question's own numbers do not count, except of what remains. Beside the number of a noun only numbers of other
    nouns may stand.
    """
    *_, noun = [None, *(one or other for one, other in _COUNTED.findall(question[-WINDOW:]))]
    if noun is None:
        return None
    counted = re.compile(r"(?<=\b[12]\d{3})\b" if noun == "year" else rf"{_BEFORE_NOUN}{noun}\b", re.IGNORECASE)
    named = [each for each in numbers if counted.match(each.string, each.end())]
    own = [each for each in named if value_of(each) not in asked or _REMAIN.match(each.string, each.end())]
    is_clear = noun == "year" or all(each in named or next_word(each) not in _NO_NOUN for each in numbers)
    return _phrase(own[-1], numbers) if is_clear and len(set(map(value_of, own))) == 1 else None


def _said(numbers: Sequence[re.Match[str]], asked: Neighbours, *, is_alone: bool) -> str | None:
    """The last number that is not the question's, with the text after it; empty for a list, a sum and the like.

    It stands right after "is", "has" or "=", or is the only one of the whole response.
    """
    own, said = list[tuple[int, bool]](), set[Fraction | None]()
    for place, number in enumerate(numbers):
        value, around = value_of(number), asked.get(value_of(number))
        says = _SAYS.search(number.string, max(number.start() - _LONGEST_UNIT, 0), number.start())
        # A question's number is said anew if it stands beside other words than there.
        if around is None or (says and around.isdisjoint({says["equals"], next_word(number)})):
            own.append((place, says is not None))
            said = set() if says and says["equals"] else said | ({value} if says and around is None else set())
    is_only = is_alone and len({value_of(numbers[place]) for place, _ in own}) == 1
    if not own or len(said) > 1 or not (own[-1][1] or is_only):
        return None
    place, is_said = own[-1]
    return _phrase(numbers[place], numbers) if _is_whole(numbers, place, is_said=is_said) else ""


def _phrase(number: re.Match[str], numbers: Sequence[re.Match[str]]) -> str:
    """The text from a number to the next one; empty if the number is part of an expression."""
    end = next((each.start() for each in numbers if each.start() > number.start()), None)
    return "" if _is_part(number) else number.string[number.start() : end].strip()


def has_digit(text: str) -> bool:
    return any(each.isdecimal() for each in text)


def _is_part(number: re.Match[str]) -> bool:
    """Whether the number is ruled out, or is part of a sum, a root, a power or a similar expression."""
    before = number.string[max(number.start() - _LONGEST_UNIT, 0) : number.start()]
    is_followed = _PART_BEFORE.match(number.string, number.end())
    is_signed = number["sign"] and _TERM.search(before)
    return bool(is_signed or is_followed or _PART_AFTER.search(before) or RULED_OUT.search(before))
