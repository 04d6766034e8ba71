"""The tree of an answer's expression, and the words of its text: LaTeX or plain, bounded in length."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

MAX_DIGITS = 400


class NotAnExpression(Exception):  # noqa: N818 - a signal inside this package, not an error of the user's
    """The text is no expression that this parser reads; it is then compared as text."""


@dataclass(frozen=True)
class Number:
    """An exact number."""

    value: Fraction


@dataclass(frozen=True)
class Symbol:
    """A variable, a constant such as pi, or infinity, by its LaTeX name with subscript."""

    name: str


@dataclass(frozen=True)
class Apply:
    """An operator or function applied to its arguments."""

    name: str
    arguments: tuple["Node", ...]


Node = Number | Symbol | Apply

FUNCTIONS = tuple("arcsin arccos arctan arccot sinh cosh tanh sin cos tan cot sec csc ln log lg exp sqrt abs".split())
FUNCTION_NAMES = "|".join(FUNCTIONS)
_TOKEN = re.compile(
    rf"\s*(?:(?P<repeating>\d*\.\d*\\(?:overline|bar|dot)\s*\{{\s*\d+\s*\}})|(?P<number>\d+\.?\d*(?:[eE][-+]?\d{{1,3}}(?![a-zA-Z\d]))?|\.\d+)|\\(?P<command>[a-zA-Z]+)"
    rf"|(?P<function>(?:{FUNCTION_NAMES}|pi)(?![a-zA-Z]))|(?P<letter>[a-zA-Z])|(?P<sign>[-+*/^_!|(){{}}\[\],']))"
)
WORD = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{4,}")
DECORATIONS = tuple("vec bar hat overline tilde overrightarrow widehat widetilde dot ddot".split())
# A letter that names a function when brackets follow: f(x) is not f times x.
CALLED = "fghFG"


@dataclass(frozen=True)
class Token:
    """A word of the text: its kind (number, command, function, letter, sign) and itself."""

    kind: str
    text: str


def tokens(text: str) -> Iterator[Token]:
    """The text's words. Raises NotAnExpression at the first that is none."""
    position = 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match or match.end() == position:
            raise NotAnExpression(text)
        yield Token(str(match.lastgroup), match[str(match.lastgroup)])
        position = match.end()


def number_of(token: Token) -> Number:
    """An exact number. Raises NotAnExpression for one of too many digits."""
    if sum(character.isdigit() for character in token.text) > MAX_DIGITS:
        raise NotAnExpression("too many digits")
    return Number(_repeating(token.text) if token.kind == "repeating" else Fraction(token.text))


def _repeating(text: str) -> Fraction:
    r"""`0.1\overline{6}` is a sixth: the digits once, and again after them without end."""
    before, period = re.findall(r"\d*\.\d*|\d+", text)
    scale = Fraction(1, 10 ** (len(before) - before.index(".") - 1))
    return Fraction(before.strip(".") or 0) + scale * Fraction(int(period), 10 ** len(period) - 1)
