"""Writes what a program returned or printed as a text that is equal if Python's `==` or a judge says so.

Runs inside the sandbox, with only the standard library. Values are data: numbers, texts, bytes, dates, containers and
iterators of them. Other objects raise TypeError: their own `__eq__`, `__hash__` and `__repr__` are a program's, which
may define them as it likes.
"""

import hashlib
import math
import re
from collections import deque
from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Any

# Significant digits. Sums in another order differ from the 16th digit on, and a program's own rounding is coarser than
# this.
DIGITS = 9
# The most items of an iterator that are read, because it may have no end.
ITEMS = 10_000
DATES = (date, datetime, time, timedelta)
_DECIMAL = re.compile(r"[+-]?\d{1,300}\.\d{0,300}(?:[eE][+-]?\d{1,3})?")


def digest(text: str) -> str:
    """32 hexadecimal digits that identify a text, which may contain lone surrogates."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def returned(value: object, ignore_order: bool) -> str:
    """The text of a returned value. Raises RecursionError for one that contains itself, and its iterator's errors."""
    match value:
        case list() | tuple() | set() | frozenset() | dict() | deque():
            return _container(value, ignore_order)
        case bool() | int() | float() | Fraction() | Decimal():
            return _number(value)
        case complex():
            return f"{_number(value.real)}+{_number(value.imag)}i" if value.imag else _number(value.real)
        case str():
            return f"text {str.__len__(value)}:{str.__str__(value)}"
        case bytes() | bytearray() | memoryview():
            return f"bytes {bytes(value).hex()}"
    return "None" if value is None else _object(value, ignore_order)


# The built-in containers, by the name under which their items are written, and whether order is no part of them.
CONTAINERS: tuple[tuple[Any, str, bool], ...] = (
    (dict, "dict", True),
    (set, "set", True),
    (frozenset, "set", True),
    (list, "list", False),
    (tuple, "tuple", False),
    (deque, "deque", False),
)


def _container(value: Any, ignore_order: bool) -> str:
    """Items are read by the built-in type's iterator, because a derived class may define another one."""
    kind, name, is_unordered = next(each for each in CONTAINERS if isinstance(value, each[0]))
    items = dict.items(value) if kind is dict else kind.__iter__(value)
    return _row(name, items, is_unordered or ignore_order, ignore_order)


def _row(kind: str, items: Iterable[object], is_unordered: bool, ignore_order: bool) -> str:
    texts = [returned(item, ignore_order) for item in items]
    return f"{kind}[{','.join(sorted(texts) if is_unordered else texts)}]"


def _number(value: float | Fraction | Decimal) -> str:
    """Whole numbers with all digits, so that 1, 1.0, Decimal("1") and True are equal; others with DIGITS digits."""
    if isinstance(value, int):
        # In hexadecimal, because Python refuses to write long numbers in decimal digits.
        return f"number {int.__format__(value, 'x')}"
    if isinstance(value, Fraction) or (isinstance(value, Decimal) and value.is_finite()):
        numerator, denominator = value.as_integer_ratio()
        if denominator == 1:
            return _number(numerator)
    real = float(value)
    if math.isfinite(real):
        near = real if real.is_integer() else float(f"{real:.{DIGITS}g}")
        return _number(int(near)) if near.is_integer() else f"number {near!r}"
    return f"number {real!r}"


def _object(value: object, ignore_order: bool) -> str:
    """Views, iterators and dates. Raises TypeError for all other objects."""
    match value:
        case KeysView() | ItemsView():
            return _row("set", value, True, ignore_order)
        case range() | Iterator() | ValuesView():
            return _row("iterator", islice(iter(value), ITEMS), ignore_order, ignore_order)
    if type(value) in DATES:
        return repr(value)
    raise TypeError(f"whether two values of type {type(value).__name__} are equal cannot be seen")


def printed(text: str, ignore_order: bool) -> str:
    """Printed text as a judge reads it: words in lines, decimals by value, without empty lines at the end."""
    lines = [" ".join(map(_word, line.split())) for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return "\n".join(sorted(lines) if ignore_order else lines)


def _word(word: str) -> str:
    return f"{float(word):.{DIGITS}g}" if _DECIMAL.fullmatch(word) else word
