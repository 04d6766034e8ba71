"""A small parser for the mathematics of final answers: recursive descent over LaTeX or plain notation, to a tree."""

import re

from restrain_openrlhf.answers.expression import (
    FUNCTION_NAMES,
    MAX_DEPTH,
    MAX_LENGTH,
    MAX_TOKENS,
    SUBSCRIPT,
    WORD,
    Apply,
    Node,
    NotAnExpression,
    Number,
    tokens,
)
from restrain_openrlhf.answers.primaries import Primaries


def parse(text: str, plus_minus: int = 1) -> Node:
    """The tree of one expression; `plus_minus` is the sign that \\pm stands for. Raises NotAnExpression."""
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


class Parser(Primaries):
    """Recursive descent; every level takes the depth, so that hostile nesting ends early."""

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
        negative = {"+": False, "-": True, "pm": self.plus_minus < 0, "mp": self.plus_minus > 0}[sign]
        return Apply("-", (node,)) if negative else node

    def _product(self, depth: int) -> Node:
        node = self.power(depth)
        while True:
            if self.accept("*"):
                node = Apply("*", (node, self._signed_power(depth)))
            elif self.accept("/"):
                node = Apply("/", (node, self._signed_power(depth)))
            elif self.starts_factor():
                node = self._adjacent(node, depth)
            else:
                return node

    def _adjacent(self, left: Node, depth: int) -> Node:
        """A whole number before a fraction of whole numbers is a mixed number, anything else a product."""
        token = self.peek()
        if token is not None and token.kind == "number" and not (isinstance(left, Apply) and self.after("!")):
            raise NotAnExpression("two numbers side by side")
        right = self.power(depth)
        mixed = isinstance(left, Number) and left.value.denominator == 1 and isinstance(right, Apply)
        if mixed and isinstance(right, Apply) and right.name == "frac":
            return Apply("+" if all(isinstance(part, Number) for part in right.arguments) else "*", (left, right))
        return Apply("*", (left, right))

    def _signed_power(self, depth: int) -> Node:
        sign = self.accept("+", "-")
        return self._with_sign(sign, self.power(depth)) if sign else self.power(depth)

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
            return Apply("^", (node, self.exponent(depth + 1)))
        return node

    def exponent(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise NotAnExpression("too deep")
        sign = self.accept("+", "-")
        node = self.power(depth)
        return self._with_sign(sign, node) if sign else node
