"""Writes what a program returned or printed as a text that is equal if Python's `==` or a judge says so.

Runs inside the sandbox, with only the standard library. A value's own `__eq__`, `__hash__` and `__repr__` are not
called, because a program may define them as it likes. A value whose content cannot be seen raises TypeError, since it
would equal all others of its type.
"""

import copyreg
import hashlib
import math
import re
import sys
from collections import ChainMap, deque
from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from itertools import islice
from types import FunctionType, MethodType, ModuleType
from typing import Any

# Significant digits. Sums in another order differ from the 16th digit on, and a program's own rounding is coarser than
# this.
DIGITS = 9
# The most items of an iterator that are read, because it may have no end.
ITEMS = 10_000
# The pickle protocol for copying that also covers slots.
PICKLE_PROTOCOL = 4
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


Container = list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any] | dict[Any, Any] | deque[Any]


def _container(value: Container, ignore_order: bool) -> str:
    """Items are read by the built-in type's iterator, because a derived class may define another one."""
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
    """Other values by their content, never by their address. Raises TypeError if the content cannot be seen."""
    match value:
        case Enum():
            return f"{type(value).__name__}.{value.name}"
        case KeysView() | ItemsView():
            return _row("set", value, True, ignore_order)
        case range() | Iterator() | ValuesView():
            return _row("iterator", islice(iter(value), ITEMS), ignore_order, ignore_order)
        case FunctionType() | MethodType():
            raise TypeError("whether two functions of programs are equal cannot be seen")
    return _row(type(value).__name__, _held(value), False, ignore_order)


def _held(value: object) -> list[object]:
    """The parts of a value. Raises TypeError if they cannot be seen."""
    match value:
        case re.Match():
            return [value.string, value.regs]
        case ModuleType():
            return [value.__name__]
        case type():
            return [_name_of(value)]
    return _copied(value)


def _name_of(kind: type) -> str:
    """The name of a class in the standard library. Raises TypeError for others, whose names may not be unique."""
    module = kind.__module__
    if module.partition(".")[0] not in sys.stdlib_module_names:
        raise TypeError("whether two classes of programs are equal cannot be seen")
    return f"{module}.{kind.__qualname__}"


def _copied(value: object) -> list[object]:
    """The parts that a copy would be made from: arguments, other state, and attributes by name.

    Dates, exceptions, slices, partial functions and others have content that no attribute shows. Raises TypeError for a
    value that cannot be copied.
    """
    reduce = copyreg.dispatch_table.get(type(value))
    found = reduce(value) if reduce else value.__reduce_ex__(PICKLE_PROTOCOL)
    if isinstance(found, str):
        return [found]
    _, arguments, state, *_ = (*found, None)
    # Attributes in slots are in a separate dict.
    parts = state if isinstance(state, tuple) else (state,)
    named = [part for part in parts if isinstance(part, dict)]
    others = [part for part in parts if part is not None and not isinstance(part, dict)]
    return [[each for each in arguments if each is not type(value)], others, dict(ChainMap(*named))]


def printed(text: str, ignore_order: bool) -> str:
    """Printed text as a judge reads it: words in lines, decimals by value, without empty lines at the end."""
    lines = [" ".join(map(_word, line.split())) for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return "\n".join(sorted(lines) if ignore_order else lines)


def _word(word: str) -> str:
    return f"{float(word):.{DIGITS}g}" if _DECIMAL.fullmatch(word) else word
