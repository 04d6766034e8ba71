"""A canonical key for an answer: two answers are equal exactly when their keys are."""

import re
from fractions import Fraction

# Longer numbers are compared as text: exact arithmetic on hostile input must stay cheap.
MAX_DIGITS = 200

_SPACING = re.compile(r"\\[,;:! ]|\\quad|\\qquad|~|\s+")
_COMMANDS = re.compile(r"\\(?:left|right|displaystyle|mathrm|text|textbf|mathbf)(?![a-zA-Z])")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_FRACTION = re.compile(r"(-?)\\[dt]?frac\{?(\d+)\}?\{?(\d+)\}?")
_PLAIN_FRACTION = re.compile(r"(-?\d+)/(\d+)")
_DECIMAL = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)")


def canonical_key(answer: str) -> str:
    """Numbers by their exact value, other text by its form without spacing and font commands."""
    text = _COMMANDS.sub("", _SPACING.sub("", answer)).strip("$.")
    text = text.replace("\\$", "").replace("\\%", "%").replace("^\\circ", "").replace("^{\\circ}", "")
    number = _number(_THOUSANDS.sub("", text))
    return f"number {number}" if number is not None else f"text {text}"


def _number(text: str) -> Fraction | None:
    bare = text[1:-1] if text.startswith("{") and text.endswith("}") else text
    if sum(character.isdigit() for character in bare) > MAX_DIGITS:
        return None
    if _DECIMAL.fullmatch(bare):
        return Fraction(bare)
    fraction = _FRACTION.fullmatch(bare)
    if fraction and int(fraction[3]):
        return Fraction(int(fraction[1] + fraction[2]), int(fraction[3]))
    plain = _PLAIN_FRACTION.fullmatch(bare)
    if plain and int(plain[2]):
        return Fraction(int(plain[1]), int(plain[2]))
    return None
