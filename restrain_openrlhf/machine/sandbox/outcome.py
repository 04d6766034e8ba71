"""What a program returned or printed, as a text that is equal where Python's `==` or a judge would call it equal.

Runs inside the sandbox, with the standard library alone. No value is asked for its own `__eq__`, `__hash__` or
`__repr__`: a program may define them as it likes.
"""

import hashlib
import math
import re
from collections import deque
from collections.abc import Iterable, Iterator
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any

# Sums in another order differ from the 16th digit on; what a program rounds by itself, it rounds earlier.
DIGITS = 9
# Of an iterator that may have no end.
ITEMS = 10_000
_DECIMAL = re.compile(r"[+-]?\d{1,300}\.\d{0,300}(?:[eE][+-]?\d{1,3})?")


def digest(text: str) -> str:
    """32 hexadecimal digits of a text, lone surrogates included."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def returned(value: object, ignore_order: bool) -> str:
    """A returned value. Raises RecursionError for one that contains itself, and whatever its iterator raises."""
    match value:
        case list() | tuple() | set() | frozenset() | dict() | deque():
            return _container(value, ignore_order)
        case bool() | int() | float() | Fraction() | Decimal():
            return _number(value)
        case complex():
            return f"{_number(value.real)}+{_number(value.imag)}i" if value.imag else _number(value.real)
        case str():
            return f"text {str.__len__(value)}:{str.__str__(value)}"
        case bytes() | bytearray():
            return f"bytes {bytes(value).hex()}"
    return "None" if value is None else _object(value, ignore_order)


Container = list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any] | dict[Any, Any] | deque[Any]


def _container(value: Container, ignore_order: bool) -> str:
    """Items by the type's own iterator: a class derived from it may lie."""
    match value:
        case dict():
            return _row("dict", dict.items(value), True, ignore_order)
        case set() | frozenset():
            items = set.__iter__(value) if isinstance(value, set) else frozenset.__iter__(value)
            return _row("set", items, True, ignore_order)
        case list():
            return _row("list", list.__iter__(value), ignore_order, ignore_order)
        case tuple():
            return _row("tuple", tuple.__iter__(value), ignore_order, ignore_order)
    return _row("deque", deque.__iter__(value), ignore_order, ignore_order)


def _row(kind: str, items: Iterable[object], is_unordered: bool, ignore_order: bool) -> str:
    texts = [returned(item, ignore_order) for item in items]
    return f"{kind}[{','.join(sorted(texts) if is_unordered else texts)}]"


def _number(value: float | Fraction | Decimal) -> str:
    """1, 1.0 and True are equal; other floats by their first digits."""
    if isinstance(value, int):
        # Not in decimal digits: Python refuses to write long numbers.
        return f"number {int.__format__(value, 'x')}"
    real = float(value)
    if math.isfinite(real):
        near = real if real.is_integer() else float(f"{real:.{DIGITS}g}")
        return _number(int(near)) if near.is_integer() else f"number {near!r}"
    return f"number {real!r}"


def _object(value: object, ignore_order: bool) -> str:
    """Other values, by what they hold; never by their place in memory."""
    kind = type(value).__name__
    if isinstance(value, Enum):
        return f"{kind}.{value.name}"
    if isinstance(value, type | FunctionType | ModuleType):
        return f"{kind} {value.__name__}"
    if isinstance(value, range | Iterator):
        return _row("iterator", islice(iter(value), ITEMS), ignore_order, ignore_order)
    slots = {name for each in type(value).__mro__ for name in _slots(each)}
    fields = {**getattr(value, "__dict__", {}), **{name: getattr(value, name, None) for name in slots}}
    return _row(kind, fields.items(), True, ignore_order)


def _slots(of: type) -> tuple[str, ...]:
    names = of.__dict__.get("__slots__", ())
    return (names,) if isinstance(names, str) else tuple(names)


def printed(text: str, ignore_order: bool) -> str:
    """Printed text as a judge reads it: lines of words, decimal numbers by their value, without what ends empty."""
    lines = [" ".join(map(_word, line.split())) for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return "\n".join(sorted(lines) if ignore_order else lines)


def _word(word: str) -> str:
    return f"{float(word):.{DIGITS}g}" if _DECIMAL.fullmatch(word) else word
