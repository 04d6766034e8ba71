"""Asks a Python function of the user's own which answers of a group are equal."""

import json
import operator
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import Any, ClassVar, Literal

from restrain_openrlhf.answers.kind import PROBLEM, Row, register
from restrain_openrlhf.answers.kinds.text import ComparedTexts
from restrain_openrlhf.errors import ConfigError, DataError, GraderError, RestrainError, reason_of

# The groups whose verdicts a process keeps.
MOST_KNOWN = 1 << 14


@register
class Judge(ComparedTexts):
    """Your own function decides which short texts are equal.

    A process asks the function once for each group of different texts. If it fails, or returns nothing that can be
    read, the scoring of the group stops with the reason: a judge's silence is never a vote.
    """

    version: ClassVar[str] = "1"

    name: Literal["judge"] = "judge"
    callable: str
    """The function as `package.module:function`, importable in every process. It gets a sorted list of different
    answers and the row, and returns a list of whole numbers, equal for equal answers."""
    send: tuple[str, ...] = ()
    """Columns of the row that the function gets in addition to `problem`, such as a rubric."""
    revision: str = ""
    """Any text that names the judge's version. Change it with the judge, so that votes by the old one are refused."""

    def row_columns(self) -> frozenset[str]:
        return super().row_columns() | frozenset(self.send)

    def check_machine(self) -> None:
        """Import the function. It is not called, because that may cost money."""
        _function(self.callable)

    def check_row(self, row: Row) -> None:
        super().check_row(row)
        self._question([], row)

    def compared(self, texts: Sequence[str], row: Row) -> Sequence[int]:
        """The judge's classes. Raises GraderError if it gives none, and DataError if the row lacks a column."""
        return _verdict(self.callable, self.revision, self._question(texts, row))

    def _question(self, texts: Sequence[str], row: Row) -> str:
        """What the judge gets, as JSON. Raises DataError for a column that is missing or cannot be written as JSON."""
        if missing := [name for name in self.send if row.get(name) is None]:
            raise DataError(
                f"The prompt {str(row.get(PROBLEM))[:60]!r} has no column {missing[0]!r}, which `answers.send` names. "
                "Add the column, or remove it from `answers.send`."
            )
        sent = {name: row.get(name) for name in (PROBLEM, *self.send)}
        try:
            return json.dumps({"answers": list(texts), "row": sent})
        except (TypeError, ValueError, RecursionError) as error:
            raise DataError(
                f"For the prompt {str(row.get(PROBLEM))[:60]!r} one of the columns {', '.join(sent)} cannot be "
                f"written as JSON ({reason_of(error)}). Correct the column, or remove it from `answers.send`."
            ) from None


@lru_cache(maxsize=MOST_KNOWN)
def _verdict(name: str, _revision: str, question: str) -> tuple[int, ...]:
    """The class of each answer of a question. Raises GraderError if the function does not return one for each."""
    asked = json.loads(question)
    found = _said(name, asked["answers"], asked["row"])
    given = list(found) if isinstance(found, Iterable) and not isinstance(found, str | bytes | dict) else []
    with suppress(TypeError):
        numbers = tuple(operator.index(each) for each in given if not isinstance(each, bool))
        if len(numbers) == len(given) == len(asked["answers"]):
            return numbers
    raise GraderError(
        f"The judge {name} returned {repr(found)[:200]}; expected were {len(asked['answers'])} whole numbers, equal "
        "numbers for equal answers. Correct the function (docs/concepts/kinds.md)."
    )


def _said(name: str, answers: list[str], row: dict[str, Any]) -> Any:
    """What the user's function returns. Raises GraderError if it fails."""
    function = _function(name)
    try:
        return function(answers, row)
    except RestrainError:
        raise
    except Exception as error:  # whatever a user's function raises is the reason that is told
        raise GraderError(
            f"The judge {name} failed: {type(error).__name__}: {reason_of(error)}. The group was not scored, because "
            "a guess would count as a vote. Correct the function, and start the run again."
        ) from error


def _function(name: str) -> Any:
    """The user's function. Raises ConfigError if it cannot be imported."""
    module, _, function = name.partition(":")
    try:
        found = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"answers.callable: {name} cannot be imported ({reason_of(error)}). Install its package in this "
            "environment, or correct the name, which is package.module:function."
        ) from error
    if not callable(found):
        raise ConfigError(f"answers.callable: {name} is not a function. Name a function.")
    return found
