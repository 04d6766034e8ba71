"""The smallest parts of an expression: numbers, names, brackets, functions and their arguments, roots."""

from abc import ABC, abstractmethod
from fractions import Fraction

from restrain_openrlhf.answers.expression import (
    CALLED,
    CLOSING,
    DECORATIONS,
    FUNCTIONS,
    GREEK,
    MAX_DEPTH,
    Apply,
    Node,
    NotAnExpression,
    Number,
    Symbol,
    Token,
    number_of,
)


class Words:
    """The words still to be read, and the sign that \\pm stands for."""

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

    def after(self, text: str) -> bool:
        """Whether the word read last is this sign."""
        return self._at > 0 and self._words[self._at - 1] == Token("sign", text)

    def expect(self, text: str) -> None:
        if self.accept(text) is None:
            raise NotAnExpression(f"{text} expected")


class Primaries(Words, ABC):
    """What stands between signs; sums and powers, which these hold in turn, are the whole parser's."""

    @abstractmethod
    def sum(self, depth: int) -> Node:
        """A sum, the outermost form."""

    @abstractmethod
    def power(self, depth: int) -> Node:
        """A part with its exponent."""

    @abstractmethod
    def exponent(self, depth: int) -> Node:
        """What stands after ^."""

    @abstractmethod
    def starts_factor(self) -> bool:
        """Whether the next word begins a factor of the product at hand."""

    def primary(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise NotAnExpression("too deep")
        token = self.next()
        if token.kind in ("number", "repeating"):
            return number_of(token)
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
        """The words up to the brace that closes; braces between them only held a font together."""
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
        """A braced group, or one token: `\\frac12` is a half."""
        token = self.peek()
        if token is not None and token.kind == "number" and len(token.text) > 1 and token.text.isdigit():
            self._words[self._at : self._at + 1] = [Token("number", digit) for digit in token.text]
        return self.primary(depth + 1)

    def _function(self, name: str, depth: int) -> Node:
        if name == "sqrt":
            return self._root(depth)
        base = (self._base(depth),) if name == "log" and self.accept("_") else ()
        power = self.exponent(depth + 1) if self.accept("^") else None
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
            return self.primary(depth + 1)
        sign = self.accept("-")
        node = self.power(depth + 1)
        while self.starts_factor() and not self._at_function():
            node = Apply("*", (node, self.power(depth + 1)))
        return Apply("-", (node,)) if sign else node

    def _at_function(self) -> bool:
        token = self.peek()
        return token is not None and (
            (token.kind == "function" and token.text != "pi") or (token.kind == "command" and token.text in FUNCTIONS)
        )
