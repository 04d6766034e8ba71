"""Keys of equations, assignments, inequalities and memberships."""

import re
from collections.abc import Callable

from restrain_openrlhf.answers.expression import NotAnExpression
from restrain_openrlhf.answers.operations import CONTEXT, Value, inexact
from restrain_openrlhf.answers.parser import parse
from restrain_openrlhf.answers.structure import split_top_level
from restrain_openrlhf.answers.value import at_point, fingerprint, fingerprints, values, variables

KeyOf = Callable[[str], str]

_RELATION = re.compile(r"\\(?:le|ge|ne|in|approx|simeq|equiv|to|implies|iff|mid|subset)(?![a-zA-Z])|[=<>≈:]")
# x, f(x), a_{37}, \theta, y', N
_NAME = re.compile(r"\\?[a-zA-Z]+'*(?:_(?:\{[^{}]*\}|\w))?(?:\s*\(\s*[a-zA-Z](?:\s*,\s*[a-zA-Z])*\s*\))?")
_NAME_TUPLE = re.compile(r"\(\s*[a-zA-Z](?:_\w)?(?:\s*,\s*[a-zA-Z](?:_\w)?)*\s*\)")
MEMBERSHIP, UNEQUAL = r"\in", r"\ne"
INEQUALITY, LESS = ("<", ">", r"\le", r"\ge"), ("<", r"\le")
APPROXIMATE = (r"\approx", "≈", r"\simeq")
STRICT = ("<", ">")


def relation_key(text: str, key_of: KeyOf) -> str | None:
    """The key of a text with a relation sign in no bracket; None where there is none."""
    signs = _top_level_signs(text)
    if not signs:
        return None
    sides = [side.strip() for side in split_top_level(text, tuple(dict.fromkeys(signs)))]
    if signs[0] in APPROXIMATE:
        return key_of(sides[0])
    if signs[0] in (MEMBERSHIP, UNEQUAL) and len(signs) == 1:
        return _membership_or_unequal(sides, signs[0], key_of)
    if set(signs) <= {"="} or (signs[-1] in APPROXIMATE and set(signs[:-1]) == {"="}):
        return _equation(sides[: signs.count("=") + 1], key_of)
    return _inequality(sides, signs) if all(sign in INEQUALITY for sign in signs) else None


def _membership_or_unequal(sides: list[str], sign: str, key_of: KeyOf) -> str | None:
    """`x in A` is A; `x != 1` is told from 1; without a name, both sides count."""
    if is_name(sides[0]):
        return key_of(sides[1]) if sign == MEMBERSHIP else f"not {key_of(sides[1])}"
    scaled = _scaled_difference(sides[0], sides[1]) if sign == UNEQUAL else None
    return f"unequal {scaled}" if scaled else None


def _top_level_signs(text: str) -> list[str]:
    found, depth, position = [], 0, 0
    while position < len(text):
        match = _RELATION.match(text, position) if depth == 0 else None
        if match:
            found.append(match[0])
            position = match.end()
            continue
        depth = max(depth + (text[position] in "([{") - (text[position] in ")]}"), 0)
        position += 1
    # A comma outside brackets makes a list of relations, which is not one relation.
    return found if len(split_top_level(text, (",", ";"))) == 1 else []


def is_name(side: str) -> bool:
    """Whether a side only names what the other side is."""
    return bool(_NAME.fullmatch(side) or _NAME_TUPLE.fullmatch(side))


def _equation(sides: list[str], key_of: KeyOf) -> str | None:
    """`name = ... = value` is its value; other equations are equal up to scale and to the order of their sides."""
    if is_name(sides[0]):
        return key_of(sides[-1])
    if len(sides) == 2 and is_name(sides[1]):  # noqa: PLR2004 - two sides
        return key_of(sides[0])
    keys = {key_of(side) for side in sides}
    if len(keys) == 1:
        return keys.pop()
    if len(sides) != 2:  # noqa: PLR2004 - two sides
        return None
    scaled = _scaled_difference(sides[0], sides[1])
    return f"equation {scaled}" if scaled else None


def _difference(left: str, right: str) -> tuple[Value, ...] | None:
    """left − right at the fixed points; None where it is no expression, or has no variable to tell points apart."""
    try:
        found = values(parse(f"({left})-({right})"))
    except NotAnExpression:
        return None
    return found if len(found) > 1 else None


def _scaled_difference(left: str, right: str) -> str | None:
    found = _difference(left, right)
    if found is None:
        return None
    first = next((value for value in found if value != 0), None)
    if first is None:
        return "identity"
    return " | ".join(fingerprint(inexact(value) / inexact(first)) for value in found)


def _inequality(sides: list[str], signs: list[str]) -> str | None:
    """One variable between bounds is an interval; other inequalities are equal up to a positive scale."""
    if len(sides) == 3 and all(sign in LESS for sign in signs) and is_name(sides[1]):  # noqa: PLR2004 - a < x < b
        return _interval(sides[0], signs[0] in STRICT, sides[2], signs[1] in STRICT)
    if len(sides) == 3 and not any(sign in LESS for sign in signs) and is_name(sides[1]):  # noqa: PLR2004
        return _interval(sides[2], signs[1] in STRICT, sides[0], signs[0] in STRICT)
    if len(sides) != 2:  # noqa: PLR2004 - two sides
        return None
    left, right = sides if signs[0] in LESS else sides[::-1]
    return _one_sided(left, right, signs[0] in STRICT)


def _interval(low: str, low_open: bool, high: str, high_open: bool) -> str | None:
    try:
        bounds = [" | ".join(fingerprints(values(parse(side)))) for side in (low, high)]
    except NotAnExpression:
        return None
    return _interval_key(f"value {bounds[0]}", low_open, f"value {bounds[1]}", high_open)


def _interval_key(low: str, low_open: bool, high: str, high_open: bool) -> str:
    kind = {"()": "tuple", "[]": "closed"}
    brackets = ("(" if low_open else "[") + (")" if high_open else "]")
    return f"{kind.get(brackets, f'half {brackets}')} {low}, {high}"


def _one_sided(left: str, right: str, strict: bool) -> str | None:
    """left < right: linear in one variable, it is a ray; otherwise compared as left − right up to a positive scale."""
    found = _difference(left, right)
    heights = [_real(value) for value in found or ()]
    if not heights or None in heights:
        return None
    real = [height for height in heights if height is not None]
    names = variables(parse(f"({left})-({right})"))
    ray = _ray(real, next(iter(names)), strict) if len(names) == 1 else None
    if ray:
        return ray
    scale = abs(real[0]) or CONTEXT.mpf(1)
    return f"less {strict} " + " | ".join(fingerprint(height / scale) for height in real)


def _real(value: Value) -> Value | None:
    """The value as a real number; None if it has an imaginary part, for then there is no order."""
    number = CONTEXT.mpc(inexact(value))
    return None if number.imag else number.real


def _ray(heights: list[Value], name: str, strict: bool) -> str | None:
    """Where a x + b < 0, by its values at the three points; None where they are not on a line."""
    points = [inexact(at_point(name, index)) for index in range(len(heights))]
    slope = (heights[1] - heights[0]) / (points[1] - points[0])
    on_line = heights[0] + slope * (points[2] - points[0])
    if slope == 0 or abs(on_line - heights[2]) > CONTEXT.mpf(10) ** -40:
        return None
    bound = "value " + fingerprint(points[0] - heights[0] / slope)
    if slope > 0:
        return _interval_key("-infinity", True, bound, strict)
    return _interval_key(bound, strict, "+infinity", True)
