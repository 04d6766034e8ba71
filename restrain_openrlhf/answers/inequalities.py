"""Keys of inequalities: intervals and rays of one variable, or else a difference up to a positive factor."""

import re

from restrain_openrlhf.answers.labels import is_name
from restrain_openrlhf.answers.parser import parse
from restrain_openrlhf.answers.structure import bracket_kind
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

LESS = ("<", r"\le")
MIRRORED = {">": "<", r"\ge": r"\le"}
_LEFT_RAY = re.compile(r"(?:tuple|half \(\]) -infinity, value (?P<bound>\S+) 0")
_RIGHT_RAY = re.compile(r"(?:tuple|half \[\)) value (?P<bound>\S+) 0, \+infinity")


def inequality_key(sides: list[str], signs: list[str]) -> str | None:
    """The key of an inequality: an interval for one variable between bounds, or else that of its difference."""
    if signs[0] in MIRRORED:
        sides, signs = sides[::-1], [MIRRORED.get(sign, "") for sign in reversed(signs)]
    if not all(sign in LESS for sign in signs):
        return None
    strict = [sign == "<" for sign in signs]
    if len(sides) == 3 and is_name(sides[1]):  # noqa: PLR2004 - a < x < b
        return _interval(sides[0], strict[0], sides[2], strict[1])
    return _one_sided(sides[0], sides[1], strict[0]) if len(sides) == 2 else None  # noqa: PLR2004 - two sides


def _interval(low: str, low_open: bool, high: str, high_open: bool) -> str | None:
    below, above = values_of(low), values_of(high)
    if below is None or above is None:
        return None
    return _interval_key(value_key(below), low_open, value_key(above), high_open)


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
