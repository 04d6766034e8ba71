"""A line of `restrain doctor`'s report."""

from collections.abc import Callable
from dataclasses import dataclass

from restrain_openrlhf.errors import RestrainError


@dataclass(frozen=True)
class Finding:
    """One check: what was found, and what to do where it fails or where there is better."""

    name: str
    found: str
    ok: bool
    advice: str = ""


def checked(name: str, found: Callable[[], str]) -> Finding:
    """What `found` returns, or its error of ours as what to do."""
    try:
        return Finding(name, found(), True)
    except (RestrainError, ImportError) as error:
        return Finding(name, "no", False, str(error))
