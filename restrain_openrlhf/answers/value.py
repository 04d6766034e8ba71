"""The value of an expression: exact where it is rational, else 60 digits; at fixed points where it has variables."""

import hashlib
from fractions import Fraction

from restrain_openrlhf.answers.expression import Apply, Node, NotAnExpression, Number, Symbol
from restrain_openrlhf.answers.operations import CONSTANTS, CONTEXT, OPERATIONS, Value, bounded, inexact

SIGNIFICANT = 30
POINTS = 3
# Python refuses to print whole numbers longer than this; they are known by a hash.
MAX_PRINTED_BITS = 13_000


def values(node: Node) -> tuple[Value, ...]:
    """The value at each of the fixed points; a single one where there is no variable. Raises NotAnExpression."""
    count = POINTS if has_variables(node) else 1
    try:
        return tuple(_evaluate(node, point) for point in range(count))
    except (ZeroDivisionError, OverflowError, ValueError, TypeError) as error:
        raise NotAnExpression(str(error)) from None


def has_variables(node: Node) -> bool:
    """Whether the value depends on the point."""
    if isinstance(node, Apply):
        return node.name.startswith("call ") or any(has_variables(part) for part in node.arguments)
    return isinstance(node, Symbol) and node.name not in CONSTANTS


def variables(node: Node) -> set[str]:
    """Names of the free variables."""
    if isinstance(node, Apply):
        return set().union(*(variables(part) for part in node.arguments))
    return {node.name} if isinstance(node, Symbol) and node.name not in CONSTANTS else set()


def fingerprint(value: Value) -> str:
    """A text that is equal for equal values: 30 significant digits, or all of a longer whole number."""
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


def fingerprints(found: tuple[Value, ...]) -> list[str]:
    """One fingerprint per point; a single one where the variables cancel."""
    texts = [fingerprint(value) for value in found]
    return texts[:1] if len(set(texts)) == 1 else texts


def _evaluate(node: Node, point: int) -> Value:
    if isinstance(node, Number):
        return node.value
    if isinstance(node, Symbol):
        return CONSTANTS[node.name]() if node.name in CONSTANTS else at_point(node.name, point)
    arguments = [_evaluate(part, point) for part in node.arguments]
    if node.name.startswith("call "):
        return at_point(f"{node.name} {fingerprint(arguments[0])}", point)
    return bounded(OPERATIONS[node.name](*arguments))


def at_point(name: str, point: int) -> Fraction:
    """The value of a variable at a point: fixed for good by its name, positive at two points and negative at one."""
    digest = hashlib.sha256(f"{point}:{name}".encode()).digest()
    value = Fraction(int.from_bytes(digest[:5], "big"), 2**39) + Fraction(1, 3)
    return -value if point == 1 else value
