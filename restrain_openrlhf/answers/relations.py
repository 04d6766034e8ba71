"""Keys of equations, assignments, ratios and memberships; of inequalities as intervals and rays of one variable."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from restrain_openrlhf.answers.labels import is_constant_name, is_name, is_ratio_part, names
from restrain_openrlhf.answers.parser import parse
from restrain_openrlhf.answers.structure import bracket_kind, outside_brackets, split_top_level
from restrain_openrlhf.answers.value import (
    CONTEXT,
    Value,
    at_point,
    fingerprint,
    inexact,
    value_key,
    values_of,
    variables,
)

KeyOf = Callable[[str], str]

_RELATION = re.compile(r"\\(?:le|ge|ne|in|approx|approxeq|simeq|equiv|to|implies|iff|mid|subset)(?![a-zA-Z])|[=<>≈:]")
_TIME_OF_DAY = re.compile(r"\d{1,2}\s*:\s*\d\d")
MEMBERSHIP, UNEQUAL = r"\in", r"\ne"
# Relative to the factor of the coordinate that an equation gives.
TINY = CONTEXT.mpf(10) ** -30
APPROXIMATE = (r"\approx", r"\approxeq", "≈", r"\simeq")
LESS = ("<", r"\le")
MIRRORED = {">": "<", r"\ge": r"\le"}
_LEFT_RAY = re.compile(r"(?:tuple|half \(\]) -infinity, value (?P<bound>\S+) 0")
_RIGHT_RAY = re.compile(r"(?:tuple|half \[\)) value (?P<bound>\S+) 0, \+infinity")


@dataclass(frozen=True)
class Assignment:
    """A value and the label that names it."""

    label: str
    value: str


def relation_key(text: str, key_of: KeyOf) -> str | None:
    """The key of a text with a sign of relation outside brackets; None if there is none."""
    signs = top_level_signs(text)
    if not signs:
        return None
    if ":" in signs:
        return _ratio(text, key_of) if set(signs) <= {":", "="} else None
    found = assignment(text)
    if found:
        return key_of(found.value)
    sides, exact = sides_of(text, signs), _exact(signs)
    if signs in ([MEMBERSHIP], [UNEQUAL]):
        # `x in A` is A, and `x != 1` differs from 1. Without a name, both sides of ≠ count.
        if is_name(sides[0]):
            return key_of(sides[1]) if signs == [MEMBERSHIP] else f"not {key_of(sides[1])}"
        scaled = _scaled_difference(sides[0], sides[1]) if signs == [UNEQUAL] else None
        return f"unequal {scaled}" if scaled else None
    is_equation = set(signs[: exact - 1]) <= {"="}
    return _equation(sides[:exact], key_of) if is_equation else inequality_key(sides, signs)


def assignment(text: str) -> Assignment | None:
    """`label = … = value ≈ …`, or with its two sides exchanged; None if no side is a label.

    The value of a chain is its last exact side, or the first approximation if there is no exact one.
    """
    signs = top_level_signs(text)
    if not signs or not all(sign == "=" or sign in APPROXIMATE for sign in signs):
        return None
    sides = sides_of(text, signs)
    label, value = sides[0], sides[max(_exact(signs) - 1, 1)]
    if signs[0] in APPROXIMATE and (not label or is_constant_name(label)):
        return None if label else Assignment(label, value)
    if names(label, value):
        return Assignment(label, value)
    return Assignment(value, label) if signs == ["="] and names(value, label) else None


def sides_of(text: str, signs: list[str]) -> list[str]:
    """The parts between the signs of relation of a text, of which `signs` are all."""
    return [side.strip() for side in split_top_level(text, tuple(dict.fromkeys(signs)))]


def _exact(signs: list[str]) -> int:
    """The number of sides before the first sign of approximation."""
    return next((place for place, sign in enumerate(signs) if sign in APPROXIMATE), len(signs)) + 1


def top_level_signs(text: str) -> list[str]:
    """The signs of relation outside brackets, in order; none in a list."""
    if not _RELATION.search(text):
        return []
    found, end = [], 0
    for place in outside_brackets(text):
        match = _RELATION.match(text, place) if place >= end else None
        if match:
            found.append(match[0])
            end = match.end()
    # A comma outside brackets makes a list of relations, which is not one relation.
    return found if len(split_top_level(text, (",", ";"))) == 1 else []


def _ratio(text: str, key_of: KeyOf) -> str | None:
    """The key of a ratio: `a:b = 2:3` is 2:3, and 2:3 equals 4:6. A time of day is no ratio."""
    sides = [[part.strip() for part in split_top_level(side, (":",))] for side in split_top_level(text, ("=",))]
    if len(sides) == 2 and len(sides[0]) > 1 and all(is_ratio_part(part) for part in sides[0]):  # noqa: PLR2004
        return key_of(":".join(sides[1])) if len(sides[1]) in (1, len(sides[0])) else None
    if len(sides) > 1 or _TIME_OF_DAY.fullmatch(text):
        return None
    constants = [found[0] for part in sides[0] if (found := values_of(part)) and len(found) == 1]
    if len(constants) < len(sides[0]) or constants[0] == 0:
        return None
    return "ratio " + ":".join(fingerprint(inexact(part) / inexact(constants[0])) for part in constants)


def _equation(sides: list[str], key_of: KeyOf) -> str | None:
    """The key of an equation, which does not depend on a factor or on the order of the sides.

    An equation that gives a coordinate in terms of others is that, as in y = f(x): 2x + y = 3 is y = 3 - 2x.
    """
    keys = {key_of(side) for side in sides}
    if len(keys) == 1:
        return keys.pop()
    if len(sides) != 2:  # noqa: PLR2004 - two sides
        return None
    solved = next((key for name in "zyx" if (key := _solved_for(name, f"({sides[0]})-({sides[1]})"))), None)
    scaled = None if solved else _scaled_difference(sides[0], sides[1])
    return solved or (f"equation {scaled}" if scaled else None)


def _solved_for(name: str, text: str) -> str | None:
    """The key of the value of `name` where `text` is 0; None unless `name` is in it once, with a constant factor."""
    found = [values_of(_put(value, name, text)) for value in ("(0)", "(1)", name)]
    count = max(len(at_points or ()) for at_points in found)
    if None in found or count == 1:
        return None
    zero, one, own = ([inexact(value) for value in at_points * count][:count] for at_points in found if at_points)
    factors = [end - start for start, end in zip(zero, one, strict=True)]
    expected = [start + factors[0] * inexact(at_point(name, place)) for place, start in enumerate(zero)]
    differences = [*(factor - factors[0] for factor in factors), *(x - y for x, y in zip(own, expected, strict=True))]
    if factors[0] == 0 or any(abs(each) > abs(factors[0]) * TINY for each in differences):
        return None
    return value_key(tuple(-start / factors[0] for start in zero))


def _put(value: str, name: str, text: str) -> str:
    return re.sub(rf"\\[a-zA-Z]+|{name}", lambda found: value if found[0] == name else found[0], text)


def _scaled_difference(left: str, right: str) -> str | None:
    found = difference(left, right)
    if found is None:
        return None
    first = next((value for value in found if value != 0), None)
    if first is None:
        return "identity"
    scaled = [fingerprint(inexact(value) / inexact(first)) for value in found]
    # A constant difference: no variable can satisfy the equation, so there is nothing to compare.
    return " | ".join(scaled) if len(set(scaled)) > 1 else None


def inequality_key(sides: list[str], signs: list[str]) -> str | None:
    """The key of an inequality: an interval for one variable between bounds, or else that of its difference."""
    if signs[0] in MIRRORED:
        sides, signs = sides[::-1], [MIRRORED.get(sign, "") for sign in reversed(signs)]
    if not all(sign in LESS for sign in signs):
        return None
    strict = [sign == "<" for sign in signs]
    if len(sides) == 3 and is_name(sides[1]):  # noqa: PLR2004 - a < x < b
        below, above = values_of(sides[0]), values_of(sides[2])
        return _interval_key(value_key(below), strict[0], value_key(above), strict[1]) if below and above else None
    return _one_sided(sides[0], sides[1], strict[0]) if len(sides) == 2 else None  # noqa: PLR2004 - two sides


def _interval_key(low: str, low_open: bool, high: str, high_open: bool) -> str:
    brackets = ("(" if low_open else "[") + (")" if high_open else "]")
    return f"{bracket_kind(brackets)} {low}, {high}"


def _one_sided(left: str, right: str, strict: bool) -> str | None:
    """The key of left < right: a ray if it is linear in one variable, or else left − right up to a positive factor."""
    numbers = [CONTEXT.mpc(inexact(value)) for value in difference(left, right) or ()]
    # Complex numbers have no order.
    if not numbers or any(number.imag for number in numbers):
        return None
    heights = [number.real for number in numbers]
    names = variables(parse(f"({left})-({right})"))
    ray = _ray(heights, next(iter(names)), strict) if len(names) == 1 else None
    if ray:
        return ray
    scale = abs(heights[0]) or CONTEXT.mpf(1)
    return f"less {strict} " + " | ".join(fingerprint(height / scale) for height in heights)


def _ray(heights: list[Value], name: str, strict: bool) -> str | None:
    """The ray where a x + b < 0, from its values at the three points; None if these are not on a line."""
    points = [inexact(at_point(name, index)) for index in range(len(heights))]
    slope = (heights[1] - heights[0]) / (points[1] - points[0])
    on_line = heights[0] + slope * (points[2] - points[0])
    if slope == 0 or abs(on_line - heights[2]) > CONTEXT.mpf(10) ** -40:
        return None
    bound = "value " + fingerprint(points[0] - heights[0] / slope)
    if slope > 0:
        return _interval_key("-infinity", True, bound, strict)
    return _interval_key(bound, strict, "+infinity", True)


def difference(left: str, right: str) -> tuple[Value, ...] | None:
    """left − right at the fixed points; None if it is no expression or has no variable."""
    found = values_of(f"({left})-({right})")
    return found if found and len(found) > 1 else None


def are_disjoint_rays(keys: list[str]) -> bool:
    """Whether the keys are those of x < a and x > b, in any order, with a ≤ b."""
    left, right = ([found for key in keys if (found := ray.fullmatch(key))] for ray in (_LEFT_RAY, _RIGHT_RAY))
    if len(keys) != 2 or not left or not right:  # noqa: PLR2004 - one of each
        return False
    return bool(CONTEXT.mpf(left[0]["bound"]) <= CONTEXT.mpf(right[0]["bound"]))
