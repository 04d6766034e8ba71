"""A judge that is a Python function of the user's own, named as package.module:function."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from restrain_openrlhf.answers.kinds.judge.verdicts import Ask
from restrain_openrlhf.errors import ConfigError, GraderError, RestrainError, reason_of


def function_judge(name: str) -> Ask:
    """A function as a judge. Raises ConfigError where it cannot be imported."""
    function = _imported(name)

    def ask(question: Mapping[str, Any]) -> Any:
        row = question["row"]
        try:
            if "answers" in question:
                return {"classes": function(list(question["answers"]), dict(row))}
            return {"equal": [function(first, second, dict(row)) for first, second in question["pairs"]]}
        except RestrainError:
            raise
        except Exception as error:  # whatever a user's function raises is the reason that is told
            raise GraderError(
                f"The judge {name} failed: {type(error).__name__}: {reason_of(error)}. The group is not scored, as a "
                "guess would be a vote. Correct the function."
            ) from error

    return ask


def _imported(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    try:
        found = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"answers.callable: {name} cannot be imported ({reason_of(error)}). Install its package in this "
            "environment, or correct the name."
        ) from error
    if not callable(found):
        raise ConfigError(f"answers.callable: {name} is no function. Name one.")
    return found  # type: ignore[no-any-return]  # just found to be callable
