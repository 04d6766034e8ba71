"""Converts units of measurement with Pint, which is loaded only if a row or a setting names a unit."""

import re
from fractions import Fraction
from functools import cache, lru_cache
from tokenize import TokenError
from typing import Any

from restrain_openrlhf.errors import ConfigError, DataError, reason_of

# Only this is given to Pint: names with small exponents, joined by signs. Anything else is no unit.
_NAME = r"(?:[A-Za-zµμΩΩÅ]{1,24}|°[CFKR]?|%)"
_POWER = r"(?:(?:\^|\*\*)?\(?[-+]?[1-9]\)?|[⁻⁺]?[¹²³⁴-⁹])"
_UNIT = re.compile(rf"(?:1/)?\(?{_NAME}{_POWER}?\)?(?:[ */·⋅×]{{1,3}}\(?{_NAME}{_POWER}?\)?){{0,7}}")
_DEGREES = re.compile(r"(?:°|\bdeg(?:rees?)?)\s?(celsius|fahrenheit|[CFKR])\b", re.IGNORECASE)
# Pint's own errors are of the first two; the others come from its parser.
_REFUSALS = (AttributeError, TypeError, ValueError, ArithmeticError, AssertionError, TokenError, KeyError, IndexError)


@lru_cache(maxsize=100_000)
def convert(value: Fraction, written: str, unit: str) -> Fraction | None:
    """Convert a value from the unit `written` to `unit`; None if they have different dimensions.

    Both must satisfy `is_unit`. Raises ConfigError without Pint.
    """
    registry = _registry()
    try:
        return Fraction(registry.Quantity(value, registry.parse_units(_spelled(written))).to(_spelled(unit)).magnitude)
    except _REFUSALS:
        return None


def check(unit: str) -> None:
    """Raises DataError if Pint does not know the `unit` of a row or setting."""
    _registry()
    if not is_unit(unit):
        raise DataError(
            f"{unit!r} is not a unit that Pint knows. Write it in Pint's spelling, such as km, m/s^2 or degC, in the "
            "row's column `unit` or the setting `unit`."
        )


@lru_cache(maxsize=10_000)
def is_unit(written: str) -> bool:
    """Whether Pint knows this unit."""
    try:
        return bool(_UNIT.fullmatch(written)) and _registry().parse_units(_spelled(written)) is not None
    except _REFUSALS:
        return False


def _spelled(unit: str) -> str:
    return _DEGREES.sub(lambda found: f"deg{found[1][0].upper()}", unit.strip())


@cache
def _registry() -> Any:
    """Pint's units with exact fractions. Raises ConfigError if Pint is not installed."""
    try:
        import pint  # noqa: PLC0415 - optional, and half a second
    except ImportError as error:
        raise ConfigError(
            f"Units need Pint, which cannot be imported ({reason_of(error)}). Install it with `pip install "
            "restrain-openrlhf[units]`, or leave `unit` out."
        ) from error
    return pint.UnitRegistry(non_int_type=Fraction)
