"""Evaluates expressions: exactly if rational, else to 60 digits; at fixed points if there are variables."""

import hashlib
import operator
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from math import comb, factorial, prod
from typing import Any

import mpmath

from restrain_openrlhf.answers.parser import Apply, Constant, Node, NotAnExpression, Symbol, parse

SIGNIFICANT = 30
POINTS = 3
# Python refuses to print whole numbers longer than this, so their fingerprint is a hash.
MAX_PRINTED_BITS = 13_000
CONTEXT = mpmath.mp.clone()
CONTEXT.dps = 60
# Bounds that keep the exact arithmetic of hostile answers cheap.
MAX_BITS = 40_000
MAX_FACTORIAL = 2100
MAX_BINOMIAL = 10**4
MAX_ARGUMENT = 10**5
MAX_ROOT = 1000

Value = Any  # Fraction, or an mpmath number of CONTEXT


def bounded(value: Value) -> Value:
    if isinstance(value, Fraction):
        if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
            raise NotAnExpression("too large")
        return value
    if not CONTEXT.isfinite(value):
        raise NotAnExpression("not finite")
    return value


def inexact(value: Value) -> Any:
    """The value as a number of CONTEXT."""
    if isinstance(value, Fraction):
        return CONTEXT.mpf(value.numerator) / value.denominator
    return value


def _power(base: Value, exponent: Value) -> Value:
    if isinstance(exponent, Fraction) and exponent.denominator == 1 and isinstance(base, Fraction):
        bits = max(base.numerator.bit_length(), base.denominator.bit_length()) * abs(exponent)
        if bits > MAX_BITS:
            raise NotAnExpression("too large")
        return base ** int(exponent)
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator % 2 and base < 0:
        return (
            _power(_power(base, Fraction(exponent.numerator)), Fraction(1, exponent.denominator))
            if exponent.numerator != 1
            else -_power(-base, exponent)
        )
    if abs(inexact(exponent)) > MAX_ARGUMENT:
        raise NotAnExpression("too large")
    return CONTEXT.power(inexact(base), inexact(exponent))


def _root(base: Value, index: Value) -> Value:
    if not isinstance(index, Fraction) or index.denominator != 1 or not 0 < index <= MAX_ROOT:
        return _power(base, Fraction(1) / index)
    if isinstance(base, Fraction) and base < 0 and index % 2:
        return -_root(-base, index)
    return CONTEXT.root(inexact(base), int(index))


def _factorial(value: Value) -> Value:
    """The factorial, by the gamma function if the value is not a whole number, as at a variable's points."""
    if not isinstance(value, Fraction) or not -MAX_FACTORIAL <= value <= MAX_FACTORIAL:
        raise NotAnExpression("no factorial")
    if value.denominator == 1 and value >= 0:
        return Fraction(factorial(int(value)))
    return CONTEXT.factorial(inexact(value))


def _double_factorial(value: Value) -> Value:
    if not isinstance(value, Fraction) or value.denominator != 1 or not 0 <= value <= MAX_FACTORIAL:
        raise NotAnExpression("no double factorial")
    return Fraction(prod(range(int(value), 0, -2)))


def _binomial(n: Value, k: Value) -> Value:
    """The binomial coefficient, by the gamma function if a number is not whole."""
    if not all(isinstance(x, Fraction) for x in (n, k)):
        raise NotAnExpression("no binomial")
    if n.denominator == k.denominator == 1:
        if not all(0 <= x <= MAX_BINOMIAL for x in (n, k)):
            raise NotAnExpression("no binomial")
        return Fraction(comb(int(n), int(k)))
    return inexact(_factorial(n)) / inexact(_factorial(k)) / inexact(_factorial(n - k))


def _logarithm(value: Value, base: Value = None) -> Value:
    if base is None:
        return CONTEXT.log(inexact(value), 10)
    return CONTEXT.log(inexact(value)) / CONTEXT.log(inexact(base))


def _arithmetic(operation: Callable[[Any, Any], Any]) -> Callable[[Value, Value], Value]:
    def apply(one: Value, other: Value) -> Value:
        if isinstance(one, Fraction) and isinstance(other, Fraction):
            return operation(one, other)
        return operation(inexact(one), inexact(other))

    return apply


def _elementary(name: str) -> Callable[[Value], Value]:
    def apply(value: Value) -> Value:
        if abs(inexact(value)) > MAX_ARGUMENT:
            raise NotAnExpression("too large")
        return getattr(CONTEXT, name)(inexact(value))

    return apply


def _infinity() -> Value:
    raise NotAnExpression("infinity is no number")


CONSTANTS: dict[str, Callable[[], Value]] = {
    "pi": lambda: +CONTEXT.pi,
    "e": lambda: +CONTEXT.e,
    "i": lambda: CONTEXT.mpc(0, 1),
    "infty": _infinity,
}
OPERATIONS: dict[str, Callable[..., Value]] = {
    "+": lambda *terms: reduce(_arithmetic(operator.add), terms, Fraction(0)),
    "-": lambda value: -value,
    "*": _arithmetic(operator.mul),
    "/": _arithmetic(operator.truediv),
    "frac": _arithmetic(operator.truediv),
    "^": _power,
    "root": _root,
    "!": _factorial,
    "!!": _double_factorial,
    "binom": _binomial,
    "abs": abs,
    "log": _logarithm,
    "lg": _logarithm,
    "ln": lambda value: CONTEXT.log(inexact(value)),
    **{name: _elementary(name) for name in "exp sin cos tan cot sec csc sinh cosh tanh".split()},
    "arcsin": _elementary("asin"),
    "arccos": _elementary("acos"),
    "arctan": _elementary("atan"),
    "arccot": _elementary("acot"),
}


def values(node: Node) -> tuple[Value, ...]:
    """The values at the fixed points, or a single one without variables. Raises NotAnExpression."""
    count = POINTS if has_variables(node) else 1
    try:
        return tuple(_evaluate(node, point) for point in range(count))
    except (ZeroDivisionError, OverflowError, ValueError, TypeError) as error:
        raise NotAnExpression(str(error)) from None


def values_of(text: str, plus_minus: int = 1) -> tuple[Value, ...] | None:
    """The values of a text; None if it is no expression."""
    try:
        return values(parse(text, plus_minus))
    except NotAnExpression:
        return None


def real_number(text: str) -> Value | None:
    """The real number that a text stands for; None for any other text."""
    found = values_of(text)
    value = inexact(found[0]) if found and len(found) == 1 else None
    return None if getattr(value, "imag", 0) else value


def has_variables(node: Node) -> bool:
    """Whether the value depends on the point."""
    if isinstance(node, Apply):
        return node.name.startswith("call ") or any(has_variables(part) for part in node.arguments)
    return isinstance(node, Symbol) and node.name not in CONSTANTS


def variables(node: Node) -> set[str]:
    if isinstance(node, Apply):
        return set().union(*(variables(part) for part in node.arguments))
    return {node.name} if isinstance(node, Symbol) and node.name not in CONSTANTS else set()


def fingerprint(value: Value) -> str:
    """A text that is equal for equal values: 30 significant digits, or all digits of a whole number."""
    if isinstance(value, Fraction) and value.denominator == 1 and abs(value) >= 10 ** (SIGNIFICANT - 1):
        return (
            f"{value}"
            if value.numerator.bit_length() <= MAX_PRINTED_BITS
            else hashlib.sha256(hex(value.numerator).encode()).hexdigest()
        )
    number = CONTEXT.mpc(inexact(value))
    size = abs(number)
    parts = (number.real, number.imag)
    return " ".join(
        "0" if abs(part) <= size * CONTEXT.mpf(10) ** -40 else CONTEXT.nstr(part, SIGNIFICANT) for part in parts
    )


def value_key(found: tuple[Value, ...]) -> str:
    """The key of an expression: one fingerprint per point, or a single one if the variables cancel."""
    texts = [fingerprint(value) for value in found]
    return "value " + " | ".join(texts[:1] if len(set(texts)) == 1 else texts)


def _evaluate(node: Node, point: int) -> Value:
    if isinstance(node, Constant):
        return node.value
    if isinstance(node, Symbol):
        return CONSTANTS[node.name]() if node.name in CONSTANTS else at_point(node.name, point)
    arguments = [_evaluate(part, point) for part in node.arguments]
    if node.name.startswith("call "):
        return at_point(f"{node.name} {fingerprint(arguments[0])}", point)
    return bounded(OPERATIONS[node.name](*arguments))


def at_point(name: str, point: int) -> Fraction:
    """The value of a variable at a point. It depends only on the name, and is negative at point 1."""
    digest = hashlib.sha256(f"{point}:{name}".encode()).digest()
    value = Fraction(int.from_bytes(digest[:5], "big"), 2**39) + Fraction(1, 3)
    return -value if point == 1 else value
