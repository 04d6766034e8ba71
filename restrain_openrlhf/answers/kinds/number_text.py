"""Finds the number that a text states: in a span that is announced, or in the sentences of a response."""

import re
from collections.abc import Sequence, Set
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
# What a number follows that is said of what stands before.
_SAYS = re.compile(
    r"(\b(?:is|are|was|were|be|being|equals?(?=\s)|has|have|had|gets?|costs?|makes?|gives?|needs?|yields?)\b:?(?=\s)|,\sor(?=\s)|=)\s*"
    r"(?:(?:about|approximately|actually|equal\sto|equivalent\sto|exactly|indeed|just|now|only|still|a\stotal\sof)\s+)*",
    re.IGNORECASE,
)
# The end of a sentence that breaks off (a letter or a digit ends many complete responses), an aside, and a word before
# a number.
_CUT_OFF = re.compile(r"[,;(+*/=-]\s*\Z")
_IN_BRACKETS = re.compile(r"(?<=[\w%])\s\([^()]*\)")
_OF = re.compile(r"([^\W\d_]+)\s+of\s+\Z")
_ASIDE, _THAT = (
    re.compile(rf"(?<=\d)[^\d=]{{0,40}}?[\s,](?:{words})\b")
    for words in (r"because|since|while|whereas|unlike|after(?=\s\w+ing\b)", "that")
)
# The noun that a question counts; what may stand between it and its number; words after a number that are no noun; what
# is said of those that remain; and a quantity that goes on in a smaller unit.
_COUNTED = re.compile(r"\bhow\smany\s(?:(?:more|other|whole|total)\s)?([^\W\d_]+)|\b(?:what|which)\s(year)\b", re.I)
_BEFORE_NOUN = r"[\s-]?(?:(?!(?:and|or|of|in)\b)[^\W\d_]+\s)?"
_NO_NOUN = frozenset(["", *"and by from in is or times to x".split()])
_REMAIN = re.compile(r"\s?\w+\s(?:(?:are|is|were|was|will\sbe)\s)?(?:left|remain)", re.IGNORECASE)
_AND_MORE = re.compile(r"\b(?:year|month|week|day|hour|minute|pound|dollar|feet)s?(?:,|,?\sand)\Z", re.IGNORECASE)
_YEAR = re.compile(r"[12]\d{3}")
# One of a thing, and a question that asks for one of several.
_ONE_OF = re.compile(r"\b(?:an?|one|1|each|every|per)\s([^\W\d_]{3,})", re.IGNORECASE)
_EACH = re.compile(r"\b(?:each|every|per|one)\b", re.IGNORECASE)
_WORD_BEFORE = re.compile(r"[^\W\d_]{3,}\s+\Z")
_REASON = re.compile(r"(?<=\S)[,.;]?\s+(?:because|since|as|which|so|when|if|where|for)\b")
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
    plain = _REASON.split(span)[0]
    side = plain if has_digit(plain) else span
    sides = [each for each in side.split("=")[1:] if has_digit(each)] or reading.after_is(side)
    side = sides[-1] if sides and has_digit(sides[-1]) else side
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


def of_prose(text: str, question: str) -> str | None:
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
    noun = None if is_cut else _counted_by(question)
    for above, line in enumerate(reversed(lines)):
        for sentence in map(in_plain_signs, reversed(line)):
            is_about, found = reading.repeats(sentence, question), None
            if _is_of_one(sentence, question, asked):
                continue
            if noun and (is_about or is_one or noun != "year"):
                found = _of_counted(sentence, noun, asked)
            if not found and (is_about or (not above and len(sentence) <= SHORT)):
                found = _of_sentence(sentence, words, asked, is_one)
            if found is not None:
                return found or None
    return None


def _is_of_one(sentence: str, question: str, asked: Neighbours) -> bool:
    """Whether a sentence speaks of one of what the question has several of, as "One kilogram is 1000 grams" does."""
    if any(value_of(each) in asked for each in NUMBER.finditer(sentence)) or _EACH.search(question):
        return False
    several = [word for value, around in asked.items() if value != 1 for word in around]
    return any(word.startswith(found[1].lower()) for found in _ONE_OF.finditer(sentence) for word in several)


def _counted_by(question: str) -> str | None:
    """The noun after the question's last "how many", or "year"; None if it has neither."""
    found = list(_COUNTED.finditer(question[-WINDOW:]))
    return found[-1][found[-1].lastindex or 0].lower() if found else None


def _of_counted(sentence: str, noun: str, asked: Neighbours) -> str | None:
    """The number beside the noun that the question counts, or the year that it asks for, with the text after it.

    None if a sentence has none or several. The question's own numbers do not count, except of what remains; and beside
    the number only numbers of other nouns may stand.
    """
    text = in_plain_signs(numerals.in_digits(_ASIDE.split(sentence)[0]))
    counted, numbers = re.compile(_BEFORE_NOUN + noun + r"\b", re.IGNORECASE), list(NUMBER.finditer(text))
    own, beside, is_year = dict[Fraction | None, str](), False, noun == "year"
    for number, end in zip(numbers, [*(each.start() for each in numbers[1:]), len(text)], strict=False):
        value, phrase = value_of(number), text[number.start() : end].strip()
        if not (_YEAR.fullmatch(number["value"] or "") if is_year else counted.match(text, number.end())):
            beside |= next_word(number) in _NO_NOUN
        elif value not in asked or _REMAIN.match(text, number.end()):
            own[value] = "" if _is_part(text, number) or _AND_MORE.search(phrase) else phrase
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
        part = with_words(_THAT.split(whole)[0]) if mark or is_one else whole
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


def has_digit(text: str) -> bool:
    return any(each.isdecimal() for each in text)


def _is_part(text: str, number: re.Match[str]) -> bool:
    """Whether the number is ruled out, or is part of a sum, a root, a power or a similar expression."""
    before = text[max(number.start() - _LONGEST_UNIT, 0) : number.start()]
    is_signed = number["sign"] and _TERM.search(before)
    after = _PART_BEFORE.match(text, number.end())
    return bool(is_signed or after or _PART_AFTER.search(before) or RULED_OUT.search(before))
