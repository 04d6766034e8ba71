"""Parses the mathematics of a final answer, in LaTeX or plain, into a tree: tokens and recursive descent."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

MAX_LENGTH = 1000
MAX_DEPTH = 40
# A product of so many factors is a tree of that depth, over which evaluation recurses.
MAX_TOKENS = 250
SUBSCRIPT = re.compile(r"_\{(?:[^{}]|\{[^{}]*\})*\}")
GREEK = tuple(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi omicron rho varrho "
    "sigma varsigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega "
    "pi infty ell hbar".split()
)
CLOSING = {"(": ")", "[": "]", "{": "}"}
MAX_DIGITS = 400


class NotAnExpression(Exception):  # noqa: N818 - a signal inside this package, not an error of the user's
    """The text is not an expression that this parser reads, so it is compared as text."""


@dataclass(frozen=True)
class Constant:
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


Node = Constant | Symbol | Apply

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
    """A token: its kind (number, repeating, command, function, letter, sign) and its text."""

    kind: str
    text: str


def tokens(text: str) -> Iterator[Token]:
    """The text's tokens. Raises NotAnExpression at a character that begins no token."""
    position = 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match or match.end() == position:
            raise NotAnExpression(text)
        yield Token(str(match.lastgroup), match[str(match.lastgroup)])
        position = match.end()


def number_of(token: Token) -> Fraction:
    r"""The exact number of a token: `0.1\overline{6}` is a sixth. Raises NotAnExpression for too many digits."""
    if sum(character.isdigit() for character in token.text) > MAX_DIGITS:
        raise NotAnExpression("too many digits")
    if token.kind == "number":
        return Fraction(token.text)
    before, period = re.findall(r"\d*\.\d*|\d+", token.text)
    scale = Fraction(1, 10 ** (len(before) - before.index(".") - 1))
    return Fraction(before.strip(".") or 0) + scale * Fraction(int(period), 10 ** len(period) - 1)


def parse(text: str, plus_minus: int = 1) -> Node:
    """The tree of one expression, where \\pm has the sign `plus_minus`. Raises NotAnExpression for other text."""
    bare = SUBSCRIPT.sub("", text) if "_{" in text else text
    words = [word for word in WORD.findall(bare) if not re.fullmatch(rf"(?:{FUNCTION_NAMES})[a-zA-Z]?", word)]
    if len(text) > MAX_LENGTH or words:
        raise NotAnExpression(text)
    words_of_text = list(tokens(text))
    if len(words_of_text) > MAX_TOKENS:
        raise NotAnExpression("too many parts")
    parser = Parser(words_of_text, plus_minus)
    node = parser.sum(0)
    if parser.peek() is not None:
        raise NotAnExpression(text)
    return node


class Parser:
    """Recursive descent over tokens. Every level is given its depth, so that hostile nesting ends early.

    `plus_minus` is the sign that \\pm stands for.
    """

    def __init__(self, words: list[Token], plus_minus: int) -> None:
        self._words = words
        self._at = 0
        self.plus_minus = plus_minus

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
        if sign and depth <= MAX_DEPTH:
            return self._with_sign(sign, self._signed_product(depth + 1))
        return self._product(depth)

    def _with_sign(self, sign: str | None, node: Node) -> Node:
        minus = ("-", "mp" if self.plus_minus > 0 else "pm")
        return Apply("-", (node,)) if sign in minus else node

    def _product(self, depth: int) -> Node:
        node = self.power(depth)
        while True:
            if sign := self.accept("*", "/"):
                node = Apply(sign, (node, self._signed_power(depth)))
            elif self.starts_factor():
                node = self._adjacent(node, depth)
            else:
                return node

    def _adjacent(self, left: Node, depth: int) -> Node:
        """A factor without a sign before it. A whole number before a numeric fraction makes a mixed number."""
        token = self.peek()
        is_factorial = isinstance(left, Apply) and self._words[self._at - 1].text == "!"
        if token is not None and token.kind == "number" and not is_factorial:
            raise NotAnExpression("two numbers side by side")
        right = self.power(depth)
        whole = isinstance(left, Constant) and left.value.denominator == 1
        parts = right.arguments if isinstance(right, Apply) and right.name == "frac" else ()
        mixed = whole and parts and all(isinstance(part, Constant) for part in parts)
        return Apply("+" if mixed else "*", (left, right))

    def _signed_power(self, depth: int) -> Node:
        return self._with_sign(self.accept("+", "-"), self.power(depth))

    def starts_factor(self) -> bool:
        token = self.peek()
        if token is None:
            return False
        if token.kind == "sign":
            return token.text in "([{"
        return token.kind != "command" or token.text not in ("pm", "mp", "choose")

    def power(self, depth: int) -> Node:
        node = self.primary(depth + 1)
        while self.accept("!"):
            node = Apply("!!" if self.accept("!") else "!", (node,))
        if self.accept("^"):
            return Apply("^", (node, self._signed_power(depth + 1)))
        return node

    def primary(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise NotAnExpression("too deep")
        token = self.next()
        if token.kind in ("number", "repeating"):
            return Constant(number_of(token))
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
            return Apply(f"call {name}", (self.primary(depth + 1),))
        return Symbol(name)

    def _subscripted(self, name: str) -> str:
        if not self.accept("_"):
            return name
        if self.accept("{"):
            return f"{name}_{''.join(self._until_closed())}"
        return f"{name}_{self.next().text}"

    def _until_closed(self) -> list[str]:
        """The tokens up to the closing brace. Inner braces, which only grouped a font, are left out."""
        inside, depth = [], 1
        while depth:
            text = self.next().text
            depth += (text == "{") - (text == "}")
            inside.append(text)
        return [text for text in inside if text not in "{}"]

    def _command(self, name: str, depth: int) -> Node:
        if name in ("frac", "binom"):
            return Apply(name, (self._argument(depth), self._argument(depth)))
        if name in FUNCTIONS:
            return self._function(name, depth)
        if name in GREEK:
            return Symbol(self._subscripted(name.removeprefix("var")))
        if name in DECORATIONS:
            return Apply(f"call {name}", (self._argument(depth),))
        raise NotAnExpression(name)

    def _argument(self, depth: int) -> Node:
        """A braced group or a single token: `\\frac12` is a half."""
        token = self.peek()
        if token is not None and token.kind == "number" and len(token.text) > 1 and token.text.isdigit():
            self._words[self._at : self._at + 1] = [Token("number", digit) for digit in token.text]
        return self.primary(depth + 1)

    def _function(self, name: str, depth: int) -> Node:
        if name == "sqrt":
            return self._root(depth)
        base = (self._argument(depth),) if name == "log" and self.accept("_") else ()
        power = self._signed_power(depth + 1) if self.accept("^") else None
        node = Apply(name, (self._function_argument(depth), *base))
        if power == Apply("-", (Constant(Fraction(1)),)):
            return Apply(f"arc{name}", (node.arguments[0],))
        return Apply("^", (node, power)) if power is not None else node

    def _root(self, depth: int) -> Node:
        index: Node = Constant(Fraction(2))
        if self.accept("["):
            index = self.sum(depth + 1)
            self.expect("]")
        return Apply("root", (self._argument(depth), index))

    def _function_argument(self, depth: int) -> Node:
        """A bracket, or else factors up to a sign or function: `sin 2x cos x` is sin(2x) cos(x)."""
        token = self.peek()
        if token is not None and token.kind == "sign" and token.text in "([{|":
            return self.primary(depth + 1)
        sign = self.accept("-")
        node = self.power(depth + 1)
        # The token of a function has one of these texts, with a backslash before it or not.
        while self.starts_factor() and self._words[self._at].text not in FUNCTIONS:
            node = Apply("*", (node, self.power(depth + 1)))
        return self._with_sign(sign, node)
