"""RESTRAIN, label-free RL with self-penalisation, as a pipeline on OpenRLHF; `score` is its votes as a library."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from restrain_openrlhf.scoring.library import ScoredGroups, score

__all__ = ["ScoredGroups", "score"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import a name of `__all__` when it is first used, so that importing the package alone costs nothing."""
    if name in __all__:
        return getattr(import_module("restrain_openrlhf.scoring.library"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
