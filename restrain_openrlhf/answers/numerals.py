"""Numbers as they are written: digits of every script, fractions in one sign, ordinals, English number words."""

import re
import unicodedata
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

# Digits above the line, in a class of characters.
RAISED = "⁰¹²³⁴-⁹"
_RAISED_FRACTION = re.compile(rf"([{RAISED}]+)[⁄/]([₀-₉]+)")
_SIGNS = {"٫": ".", "٬": ",", "٪": "%", "⁄": "/", "∕": "/", "−": "-", "﹣": "-", "－": "-", "【": "[", "】": "]"}
_ORDINAL = re.compile(
    r"(?P<number>\d{1,2})\s?\^?\{?\s{0,3}(?:\\(?:text\w{0,9}|mathrm|mbox)\s?\{)?\s{0,3}(?P<ending>st|nd|rd|th)\}{0,2}(?![\w}])"
)
_ENDINGS = {"1": "st", "2": "nd", "3": "rd"}
# Powers of ten by name.
SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_ONES = "one two three four five six seven eight nine".split()
_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_BELOW_100 = {word: number for number, word in enumerate(["zero", *_ONES, *_TEENS])}
_BELOW_100 |= {word: 10 * number for number, word in enumerate(_TENS, 2)}
_PARTS = {"half": 2, "halve": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7}
_PARTS |= {"eighth": 8, "ninth": 9, "tenth": 10}
_WORD, _PART = (rf"(?:{'|'.join(words)})" for words in ((*_BELOW_100, *SCALES), _PARTS))
# Words that begin another word, as in `twenty-first`, are no number.
_SPELLED = re.compile(
    rf"(?<!\d[\s-])(?<!\d\s\s)\b(?:a\s(?={'|'.join(SCALES)}))?{_WORD}(?:(?:,?\sand\s|,?[\s-]+){_WORD})*\b(?!-)(?<!\bpoint)",
    re.IGNORECASE,
)
_PARTED = re.compile(rf"(?<=\bone)-(?={_PART}\b)|-(?=half\b|{_PART}s\b)", re.IGNORECASE)
_FRACTION = re.compile(rf"(?:(?P<whole>\d+)\sand\s)?\b(?P<above>an?|\d+)\s(?P<below>{_PART})s?\b", re.IGNORECASE)
_CURRENCY = r"(?:US\$|[$€£¥₹])"
# 1,234,567 and 12,34,567; 1_234_567; 1 234 567; 1234567
_WHOLE = (
    r"(?:\d{1,3}(?:,\d{2,3}){0,99},\d{3}(?![\d])|\d{1,3}(?:_\d{3}){1,99}(?![\d_])"
    r"|[1-9]\d{0,2}(?:[ \u00a0\u2009\u202f]\d{3}){1,99}(?!\d)|\d{1,400})"
)
_SCALED: dict[str, int] = {"dozen": 12, **{word: 10**power for word, power in SCALES.items()}}
SCALE = "|".join(_SCALED)
_POWER = r"(?:\s?[×x*·⋅]\s?10\s?(?:\^|\*\*)\s?[({]?(?P<power>[-+]?\d{1,4})[)}]?|[eE](?P<e>[-+]?\d{1,4}))"
NUMBER = re.compile(
    # Scripts in which numbers and letters are not separated by spaces may have letters around a number.
    rf"(?<![A-Za-z\dÀ-ÖØ-öø-\u058f_.^])(?<!\^[-({{])(?P<sign>[-+]?)\s?(?:{_CURRENCY}\s?(?P<inner>[-+]?))?"
    rf"(?:10\s?(?:\^|\*\*)\s?[({{]?(?P<ten>[-+]?\d{{1,4}})[)}}]?"
    rf"|(?:(?P<mixed>\d{{1,9}})\s(?=\d{{1,9}}/))?(?P<value>{_WHOLE}(?:\.\d{{0,400}})?|\.\d{{1,400}})"
    rf"(?:\s?/\s?(?P<below>\d{{1,400}})(?!\d|\.\d)|{_POWER})?)"
    # Not part of a longer number, of 1.2.3, 10_2 or 0x10.
    rf"(?!\d|\.\d|_\d|e[-+]?\d|x\d)(?:[\s-]{{0,3}}(?P<scale>{SCALE})s?\b)?",
    re.IGNORECASE,
)
_LATEX = (
    (re.compile(r"(\\[dt]?frac)\s?(\d)(?=\s?[\d{])"), r"\1{\2}"),
    (re.compile(r"(\\[dt]?frac\s*\{\s*\d{1,100}\s*\})\s?(\d)"), r"\1{\2}"),
    (re.compile(r"\\neq?\b|!="), "≠"),
    (re.compile(r"\\(?:pm|mp)\b|\+/?-"), "±"),
    (re.compile(r"(?<![\w)}])–(?=[.\d])"), "-"),
    (re.compile(r"\\(?:leq?|lt)\b|<="), "≤"),
    (re.compile(r"\\(?:geq?|gt)\b|>="), "≥"),
    (re.compile(r"\\(?:text|mathrm|textrm|operatorname|mbox)\s*\{([^{}]{0,100})\}"), r" \1"),
    (re.compile(r"(\d)\s?\\[dt]?frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}"), r"\1 \2/\3"),
    (re.compile(r"\\[dt]?frac\s*\{\s*([^{}]{1,100})\s*\}\s*\{\s*([^{}]{1,100})\s*\}"), r"\1/\2"),
    (re.compile(r"\\(?:times|cdot)\s?"), "×"),
    (re.compile(r"\\approx|\\simeq|≈"), "="),
    (re.compile(r"\{,\}|,\\!|\\!"), ","),
    (re.compile(r"\^\s?\\circ|\^\{\\circ\}|\\degree|\\circ"), "°"),
    (re.compile(r"\\[,;: ]|~"), " "),
    (re.compile(r"\\([$%_])"), r"\1"),
    (re.compile(r"\\(?:mu)\b\s?"), "µ"),
    (re.compile(r"\b(?:minus|negative)\s(?=[$€£]?[.\d])", re.IGNORECASE), "-"),
    (re.compile(r"\\[()\[\]]|\\left|\\right|\*\*(?=\s|$|\.)|(?<![\w*])\*\*"), ""),
)
_SUPERSCRIPT = re.compile(rf"(?<=10)[⁻⁺]?[{RAISED}]{{1,4}}")
_NEXT = re.compile(r"\s?-?([^\W\d_]+)")
_LARGEST_EXPONENT = 400
# By the value of each number of a text, what stands around it there.
Neighbours = Mapping[Fraction | None, frozenset[str]]


def in_ascii(text: str) -> str:
    r"""Digits of every script and wide letters in ASCII, fractions in LaTeX: `２４` is `24`, `¾` is `\frac{3}{4}`."""
    if text.isascii():
        return text
    text = _RAISED_FRACTION.sub(lambda found: rf"\frac{{{on_the_line(found[1])}}}{{{on_the_line(found[2])}}}", text)
    return "".join(map(_sign_in_ascii, text))


@lru_cache(maxsize=2000)
def _sign_in_ascii(sign: str) -> str:
    digit = unicodedata.decimal(sign, None)
    if digit is not None:
        return str(digit)
    if unicodedata.decomposition(sign).startswith("<fraction>"):
        return r"\frac{{{}}}{{{}}}".format(*unicodedata.normalize("NFKC", sign).split("⁄"))
    return _SIGNS.get(sign) or (chr(ord(sign) - 0xFEE0) if "\uff01" <= sign <= "\uff5e" else sign)


def on_the_line(raised: str) -> str:
    """Digits and signs above or below the line, as on the line."""
    return unicodedata.normalize("NFKC", raised).replace("−", "-")


def without_ordinals(text: str) -> str:
    r"""Ordinal numbers as numbers: `12^{\text{th}}` and `12th` are `12`. `2st`, which is no ordinal, stays."""
    return _ORDINAL.sub(_without_ending, text)


def _without_ending(found: re.Match[str]) -> str:
    number = found["number"]
    ending = "th" if number[-2:-1] == "1" else _ENDINGS.get(number[-1], "th")
    return number if found["ending"] == ending and found[0].count("{") == found[0].count("}") else found[0]


def in_digits(text: str) -> str:
    """English number words as digits: `a hundred and five` is `105`, `three and a half` is `3 1/2`.

    Words that are several numbers, or another sort of number, stay: `two three`, `twenty-first`, `three point five`.
    """
    if re.search(r"\bpoint\b", text, re.IGNORECASE):
        return text
    return _FRACTION.sub(_as_fraction, _SPELLED.sub(_as_whole, _PARTED.sub(" ", text)))


def _as_whole(found: re.Match[str]) -> str:
    words = re.findall(rf"{_WORD}\b", found[0].lower())
    if words == ["one"] and re.match(rf"\s(?!{_PART}\b)\w", found.string[found.end() :]):
        return found[0]
    total = below = 0
    for before, word in pairwise(["hundred", *words]):
        if word == "hundred":
            below = max(below, 1) * 100
        elif word in SCALES:
            total, below = total + max(below, 1) * 10 ** SCALES[word], 0
        elif before in SCALES or (before in _TENS and word in _ONES):
            below += _BELOW_100[word]
        else:
            return found[0]
    return str(total + below)


def _as_fraction(found: re.Match[str]) -> str:
    above = "1" if found["above"].isalpha() else found["above"]
    return f"{found['whole'] or ''} {above}/{_PARTS[found['below'].lower()]}".strip()


def in_plain_signs(text: str) -> str:
    """A span in plain signs: digits, ordinals, LaTeX, superscripts and minus signs in one notation."""
    text = _SUPERSCRIPT.sub(lambda found: "^" + on_the_line(found[0]), without_ordinals(in_ascii(text)))
    for pattern, replacement in _LATEX:
        text = pattern.sub(replacement, text)
    return text


def value_of(number: re.Match[str]) -> Fraction | None:
    """A number's exact value; None for a division by zero or an exponent of ten beyond 400."""
    exponent = int(number["ten"] or number["power"] or number["e"] or 0)
    if abs(exponent) > _LARGEST_EXPONENT or (number["below"] and not int(number["below"])):
        return None
    digits = re.sub(r"[^\d.]", "", number["value"] or "1")
    value = Fraction(f"0{digits}" if digits.startswith(".") else digits.rstrip(".")) / int(number["below"] or 1)
    value = (
        (value + int(number["mixed"] or 0)) * Fraction(10) ** exponent * _SCALED.get((number["scale"] or "").lower(), 1)
    )
    return -value if "-" in (number["sign"], number["inner"]) else value


@lru_cache(maxsize=1000)
def with_neighbours(text: str) -> Neighbours:
    """The values of a text's numbers, each with the words right after them, and "=" if they stand after it."""
    found: dict[Fraction | None, frozenset[str]] = {}
    for number in NUMBER.finditer(plain := in_plain_signs(in_digits(text))):
        before = "=" if plain[: number.start()].rstrip().endswith("=") else None
        around = {each for each in (before, next_word(number)) if each}
        found[value_of(number)] = found.get(value_of(number), frozenset()) | around
    return found


def next_word(number: re.Match[str]) -> str:
    found = _NEXT.match(number.string, number.end())
    return found[1].lower() if found else ""
