"""The normal form of a prompt, in which two prompts are equal that differ in case, punctuation and white space alone.

What has a meaning in mathematics is no punctuation: signs and operators, brackets and braces, primes, factorials, a
mark between digits (1.5, 2:3, 1,000) or before them (.5), dots that say "and so on".
"""

import re
import unicodedata

# One way of writing for characters that look alike and mean the same.
_ALIKE = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201b\u2032\u02bc", "'"),
        **dict.fromkeys("\u201c\u201d\u201f\u00ab\u00bb", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        "\u2026": "...",
    }
)
# Not shown, or shown as space: LaTeX's dollars, display brackets, spacing and sizing; zero-width characters.
_UNSEEN = re.compile(
    r"(?P<keep>\\\\)|\\?\$|\\[()\[\],;:! ]|\\(?:left|right|quad|qquad|displaystyle)(?![a-zA-Z])"
    r"|[~\u200b-\u200f\u2060\ufeff\u00ad]"
)
_MARK = r"[.,;:?]"
_TOKEN = re.compile(
    rf"(?<=\d)\s*(?P<inside>{_MARK}(?:\s*{_MARK})*)\s*(?=\d)"  # between digits
    r"|(?P<dots>\.\s?\.[\s.]*)"  # and so on
    r"|(?P<point>\.(?=\d))"  # .5
    r"|(?P<inch>(?<=\d)\")"
    rf"|(?P<punctuation>{_MARK}|[\"`])"
    r"|(?P<word>\\?[^\W\d_]+|\d+|\\.|\S)"
)


def normal_form(text: str) -> str:
    """The words, numbers and signs of a text, in lower case, with one space between any two.

    "Find $x-1$." and "find  x - 1" have one normal form; "x-1" and "x+1", "2^3" and "23", "1.5" and "15" have two.
    """
    plain = unicodedata.normalize("NFC", text).translate(_ALIKE)
    seen = _UNSEEN.sub(lambda found: found["keep"] or " ", plain)
    return " ".join(_tokens(seen.casefold()))


def _tokens(text: str) -> list[str]:
    found = []
    for match in _TOKEN.finditer(text):
        if match.lastgroup == "dots":
            found.append("...")
        elif match.lastgroup != "punctuation":
            found.append("".join(match[0].split()))
    return found


def letters_and_digits(text: str) -> str:
    """The text without anything but letters and digits, in lower case: signs and operators are lost too."""
    return "".join(character for character in text.casefold() if character.isalnum())
