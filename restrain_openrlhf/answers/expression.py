"""A small parser for the mathematics of final answers: LaTeX or plain, to a tree; bounded in length and depth."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

MAX_LENGTH = 1000
MAX_DEPTH = 40
MAX_DIGITS = 400
# A product of so many factors is a tree as deep, and evaluation recurses over it.
MAX_TOKENS = 250


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
_NAMES = "|".join(FUNCTIONS)
_TOKEN = re.compile(
    rf"\s*(?:(?P<number>\d+\.?\d*(?:[eE][-+]?\d{{1,3}}(?![a-zA-Z\d]))?|\.\d+)|\\(?P<command>[a-zA-Z]+)"
    rf"|(?P<function>(?:{_NAMES}|pi)(?![a-zA-Z]))|(?P<letter>[a-zA-Z])|(?P<sign>[-+*/^_!|(){{}}\[\]]))"
)
_WORD = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{4,}")
DECORATIONS = ("vec", "bar", "hat", "overline", "tilde", "overrightarrow")
GREEK = tuple(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta kappa lambda mu nu xi rho sigma tau phi varphi "
    "chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega pi infty ell hbar".split()
)
# A letter that names a function when brackets follow: f(x) is not f times x.
CALLED = "fghFG"
CLOSING = {"(": ")", "[": "]", "{": "}"}


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


def parse(text: str, plus_minus: int = 1) -> Node:
    """The tree of one expression; `plus_minus` is the sign that \\pm stands for. Raises NotAnExpression."""
    words = [word for word in _WORD.findall(text) if not re.fullmatch(rf"(?:{_NAMES})[a-zA-Z]?", word)]
    if len(text) > MAX_LENGTH or words:
        raise NotAnExpression(text)
    words_of_text = list(tokens(text))
    if len(words_of_text) > MAX_TOKENS:
        raise NotAnExpression("too many parts")
    parser = _Parser(words_of_text, plus_minus)
    node = parser.sum(0)
    if parser.peek() is not None:
        raise NotAnExpression(text)
    return node


class _Parser:
    """Recursive descent; every level takes the depth, so that hostile nesting ends early."""

    def __init__(self, words: list[Token], plus_minus: int) -> None:
        self._words = words
        self._at = 0
        self._plus_minus = plus_minus

    def peek(self) -> Token | None:
        return self._words[self._at] if self._at < len(self._words) else None

    def next(self) -> Token:
        token = self.peek()
        if token is None:
            raise NotAnExpression("unexpected end")
        self._at += 1
        return token

    def accept(self, *texts: str) -> str | None:
        token = self.peek()
        if token is not None and token.kind in ("sign", "command") and token.text in texts:
            self._at += 1
            return token.text
        return None

    def expect(self, text: str) -> None:
        if self.accept(text) is None:
            raise NotAnExpression(f"{text} expected")

    def sum(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise NotAnExpression("too deep")
        terms = [self._signed_product(depth)]
        while sign := self.accept("+", "-", "pm", "mp"):
            terms.append(self._with_sign(sign, self._signed_product(depth)))
        return terms[0] if len(terms) == 1 else Apply("+", tuple(terms))

    def _signed_product(self, depth: int) -> Node:
        sign = self.accept("+", "-", "pm", "mp")
        return (
            self._with_sign(sign, self._signed_product(depth + 1))
            if sign and depth <= MAX_DEPTH
            else self._product(depth)
        )

    def _with_sign(self, sign: str, node: Node) -> Node:
        negative = {"+": False, "-": True, "pm": self._plus_minus < 0, "mp": self._plus_minus > 0}[sign]
        return Apply("-", (node,)) if negative else node

    def _product(self, depth: int) -> Node:
        node = self._power(depth)
        while True:
            if self.accept("*"):
                node = Apply("*", (node, self._signed_power(depth)))
            elif self.accept("/"):
                node = Apply("/", (node, self._signed_power(depth)))
            elif self._starts_factor():
                node = self._adjacent(node, depth)
            else:
                return node

    def _adjacent(self, left: Node, depth: int) -> Node:
        """A whole number before a fraction of whole numbers is a mixed number, anything else a product."""
        token = self.peek()
        if token is not None and token.kind == "number":
            raise NotAnExpression("two numbers side by side")
        right = self._power(depth)
        mixed = isinstance(left, Number) and left.value.denominator == 1 and isinstance(right, Apply)
        if mixed and isinstance(right, Apply) and right.name == "frac":
            return Apply("+" if all(isinstance(part, Number) for part in right.arguments) else "*", (left, right))
        return Apply("*", (left, right))

    def _signed_power(self, depth: int) -> Node:
        sign = self.accept("+", "-")
        return self._with_sign(sign, self._power(depth)) if sign else self._power(depth)

    def _starts_factor(self) -> bool:
        token = self.peek()
        if token is None:
            return False
        if token.kind == "sign":
            return token.text in "([{"
        return token.kind != "command" or token.text not in ("pm", "mp", "choose")

    def _power(self, depth: int) -> Node:
        node = self._primary(depth + 1)
        while self.accept("!"):
            node = Apply("!", (node,))
        if self.accept("^"):
            return Apply("^", (node, self._exponent(depth + 1)))
        return node

    def _exponent(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise NotAnExpression("too deep")
        sign = self.accept("+", "-")
        node = self._power(depth)
        return self._with_sign(sign, node) if sign else node

    def _primary(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise NotAnExpression("too deep")
        token = self.next()
        if token.kind == "number":
            return _number(token.text)
        if token.kind == "letter":
            return self._letter(token.text, depth)
        if token.kind == "function":
            return Symbol("pi") if token.text == "pi" else self._function(token.text, depth)
        if token.kind == "command":
            return self._command(token.text, depth)
        return self._bracket(token.text, depth)

    def _bracket(self, opening: str, depth: int) -> Node:
        closing = "|" if opening == "|" else CLOSING.get(opening)
        if closing is None:
            raise NotAnExpression(opening)
        node = self.sum(depth + 1)
        if opening == "{" and self.accept("choose"):
            node = Apply("binom", (node, self.sum(depth + 1)))
        self.expect(closing)
        return Apply("abs", (node,)) if opening == "|" else node

    def _letter(self, letter: str, depth: int) -> Node:
        name = self._subscripted(letter)
        token = self.peek()
        if letter in CALLED and token is not None and token.text == "(":
            return Apply(f"call {name}", (self._primary(depth + 1),))
        return Symbol(name)

    def _subscripted(self, name: str) -> str:
        if not self.accept("_"):
            return name
        if self.accept("{"):
            inside = []
            while not self.accept("}"):
                inside.append(self.next().text)
            return f"{name}_{''.join(inside)}"
        return f"{name}_{self.next().text}"

    def _command(self, name: str, depth: int) -> Node:
        if name in ("frac", "binom"):
            return Apply(name, (self._argument(depth), self._argument(depth)))
        if name in FUNCTIONS:
            return self._function(name, depth)
        if name in GREEK:
            return Symbol(self._subscripted(name))
        if name in DECORATIONS:
            return Apply(f"call {name}", (self._argument(depth),))
        raise NotAnExpression(name)

    def _argument(self, depth: int) -> Node:
        """A braced group, or one token: `\\frac12` is a half."""
        token = self.peek()
        if token is not None and token.kind == "number" and len(token.text) > 1 and token.text.isdigit():
            self._words[self._at : self._at + 1] = [Token("number", digit) for digit in token.text]
        return self._primary(depth + 1)

    def _function(self, name: str, depth: int) -> Node:
        if name == "sqrt":
            return self._root(depth)
        base = (self._base(depth),) if name == "log" and self.accept("_") else ()
        power = self._exponent(depth + 1) if self.accept("^") else None
        node: Node = Apply(name, (self._function_argument(depth), *base))
        if power == Apply("-", (Number(Fraction(1)),)):
            return Apply(f"arc{name}", (self._inner(node),))
        return Apply("^", (node, power)) if power is not None else node

    def _inner(self, node: Node) -> Node:
        assert isinstance(node, Apply)
        return node.arguments[0]

    def _base(self, depth: int) -> Node:
        return self._argument(depth)

    def _root(self, depth: int) -> Node:
        if self.accept("["):
            index = self.sum(depth + 1)
            self.expect("]")
            return Apply("root", (self._argument(depth), index))
        return Apply("root", (self._argument(depth), Number(Fraction(2))))

    def _function_argument(self, depth: int) -> Node:
        """A bracket alone, else the factors up to the next sign or function: `sin 2x cos x` is sin(2x) cos(x)."""
        token = self.peek()
        if token is not None and token.kind == "sign" and token.text in "([{|":
            return self._primary(depth + 1)
        sign = self.accept("-")
        node = self._power(depth + 1)
        while self._starts_factor() and not self._at_function():
            node = Apply("*", (node, self._power(depth + 1)))
        return Apply("-", (node,)) if sign else node

    def _at_function(self) -> bool:
        token = self.peek()
        return token is not None and (
            (token.kind == "function" and token.text != "pi") or (token.kind == "command" and token.text in FUNCTIONS)
        )


def _number(text: str) -> Number:
    if sum(character.isdigit() for character in text) > MAX_DIGITS:
        raise NotAnExpression("too many digits")
    return Number(Fraction(text))
