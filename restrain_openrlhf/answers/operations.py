"""Arithmetic and functions on values: exact on fractions, else in 60 digits, and bounded in cost."""

from collections.abc import Callable
from fractions import Fraction
from math import comb, factorial, prod
from typing import Any

import mpmath

from restrain_openrlhf.answers.expression import NotAnExpression

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
    """The factorial; by the gamma function where the value is no whole number, as at the points of a variable."""
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
    """The binomial coefficient; by the gamma function where one of the two is no whole number."""
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


def _sum(*terms: Value) -> Value:
    total: Value = Fraction(0)
    for term in terms:
        total = _mix(total, term, lambda a, b: a + b)
    return total


def _mix(one: Value, other: Value, operation: Callable[[Any, Any], Any]) -> Value:
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return operation(one, other)
    return operation(inexact(one), inexact(other))


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
    "+": _sum,
    "-": lambda value: -value,
    "*": lambda a, b: _mix(a, b, lambda x, y: x * y),
    "/": lambda a, b: _mix(a, b, lambda x, y: x / y),
    "frac": lambda a, b: _mix(a, b, lambda x, y: x / y),
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
