"""Asks the user's own judge which answers are equal: a Python function, or a service behind HTTP."""

import atexit
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from restrain_openrlhf.answers.kind import PROBLEM, Row, register
from restrain_openrlhf.answers.kinds.compared_texts import AS_WRITTEN, ComparedTexts
from restrain_openrlhf.answers.kinds.judge.endpoint import Endpoint
from restrain_openrlhf.answers.kinds.judge.verdicts import Ask, Cost, Verdicts, joined
from restrain_openrlhf.errors import ConfigError, DataError, GraderError, RestrainError, reason_of

_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


@register
class Judge(ComparedTexts):
    """Your own judge decides which answers are equal: a function (`callable`) or a service (`url`).

    The judge is asked once for each group of different answers, and what it said is kept. A judge that fails, or says
    nothing that can be read, stops the scoring of the group with the reason: its silence is never a vote.
    """

    version: ClassVar[str] = "1"
    without_effect: ClassVar[frozenset[str]] = frozenset({"read", "token_variable", "seconds", "tries", "cache"})

    name: Literal["judge"] = "judge"
    callable: str | None = Field(
        default=None,
        description=(
            "The judge as `package.module:function`, importable in every process. With `asks: group` it gets a sorted "
            "list of different answers and the row, and returns a list of whole numbers, equal for equal answers. "
            "With `asks: pairs` it gets two answers and the row, and returns True or False."
        ),
    )
    url: str | None = Field(
        default=None, description="The judge's address, http:// or https://, instead of `callable`."
    )
    asks: Literal["group", "pairs"] = Field(
        default="group",
        description="Whether the judge sees all different answers of a group at once, or two at a time.",
    )
    contradictions: Literal["refuse", "connect"] = Field(
        default="refuse",
        description=(
            "For pairs: what happens if A equals B, B equals C, but A does not equal C. `refuse` stops with an error; "
            "`connect` makes one class of everything that a chain of equal pairs connects."
        ),
    )
    send: tuple[str, ...] = Field(
        default=(), description="Columns of the row that the judge gets in addition to `problem`, such as a rubric."
    )
    token_variable: str | None = Field(
        default=None,
        min_length=1,
        description="The environment variable that holds the judge's token, sent as `Authorization: Bearer`.",
    )
    seconds: Annotated[float, Field(gt=0)] = Field(default=60.0, description="Seconds that a request may take.")
    tries: Annotated[int, Field(ge=1, strict=True)] = Field(
        default=5,
        description=(
            "How often a request is tried if the judge is busy or unreachable. The waits start at a second and "
            "double, or are what Retry-After says."
        ),
    )
    cache: str | None = Field(
        default=None, description="A folder that keeps verdicts for later runs; several processes may share it."
    )
    revision: str = Field(
        default="",
        description=(
            "Any text that names the judge's version. Change it with the judge, so that verdicts of the old version "
            "are not used again."
        ),
    )

    @field_validator("callable")
    @classmethod
    def _function_of_a_module(cls, name: str | None) -> str | None:
        if name is not None and not _FUNCTION.fullmatch(name):
            raise ValueError("must be package.module:function")
        return name

    @field_validator("url")
    @classmethod
    def _web_address(cls, url: str | None) -> str | None:
        place = urlsplit(url or "http://none")
        if place.scheme not in ("http", "https") or not place.hostname:
            raise ValueError("must start with http:// or https:// and name a host")
        if place.username or place.password:
            raise ValueError(
                "must not contain a user name or a password, which would be stored with the run; put a token into an "
                "environment variable and name that variable under token_variable"
            )
        return url

    @model_validator(mode="after")
    def _one_judge(self) -> "Judge":
        if (self.callable is None) == (self.url is None):
            raise ValueError("name the judge either under callable or under url, not under both")
        return self

    def row_columns(self) -> frozenset[str]:
        """The columns that are sent to the judge, and those that `read` reads."""
        return super().row_columns() | frozenset(self.send)

    @property
    def cost(self) -> Cost:
        """How many verdicts this process has asked of this judge, over all groups."""
        return _verdicts(self._judging).cost

    @property
    def _judging(self) -> "Judge":
        """The settings without `read`, which the judge does not depend on, and which may not be hashable."""
        return self.model_copy(update={"read": AS_WRITTEN})

    def check_machine(self) -> None:
        """Import the function, or find the token. The judge itself is not asked, because that may cost money."""
        super().check_machine()
        judge = _judge(self)
        if isinstance(judge, Endpoint):
            judge.check()

    def check_row(self, row: Row) -> None:
        super().check_row(row)
        self._sent(row)

    def compared(self, texts: Sequence[str], row: Row) -> list[int]:
        """The judge's classes. Raises GraderError if it gives none, and DataError if the row lacks a column."""
        verdicts, sent = _verdicts(self._judging), self._sent(row)
        if self.asks == "group":
            return verdicts.classes(texts, sent)
        pairs = list(combinations(texts, 2))
        equal = dict(zip(pairs, verdicts.equal(pairs, sent), strict=True))
        return joined(texts, equal, self.contradictions == "connect")

    def _sent(self, row: Row) -> Mapping[str, Any]:
        """The columns for the judge. Raises DataError for one that is missing or cannot be written as JSON."""
        if missing := [name for name in self.send if row.get(name) is None]:
            raise DataError(
                f"The prompt {str(row.get(PROBLEM))[:60]!r} has no column {missing[0]!r}, which `answers.send` names. "
                "Add the column, or remove it from `answers.send`."
            )
        sent = {name: row.get(name) for name in (PROBLEM, *self.send)}
        try:
            return dict(json.loads(json.dumps(sent)))
        except (TypeError, ValueError, RecursionError) as error:
            raise DataError(
                f"For the prompt {str(row.get(PROBLEM))[:60]!r} one of the columns {', '.join(sent)} cannot be "
                f"written as JSON ({reason_of(error)}). Correct the column, or remove it from `answers.send`."
            ) from None


@lru_cache(maxsize=64)
def _verdicts(judge: Judge) -> Verdicts:
    """The verdicts of a judge, shared by equal settings."""
    name = f"{judge.callable or judge.url} {judge.revision}".strip()
    verdicts = Verdicts(_judge(judge), name, None if judge.cache is None else Path(judge.cache))
    atexit.register(_tell_cost, judge.callable or judge.url, verdicts.cost)
    return verdicts


def _tell_cost(judge: str | None, cost: Cost) -> None:
    """Print the counts when the process ends. Each worker of a run counts its own questions."""
    if cost.calls or cost.cached:
        told = f"asked for {cost.calls}, known before {cost.cached}"
        print(f"note: verdicts of the judge {judge}: {told}.", file=sys.stderr)


def _judge(judge: Judge) -> Ask:
    """The judge as a function of a question. Raises ConfigError if the user's function cannot be imported."""
    if judge.url is not None:
        return Endpoint(judge.url, judge.seconds, judge.tries, judge.token_variable)
    return function_judge(str(judge.callable))


def function_judge(name: str) -> Ask:
    """The user's function as a judge. Raises ConfigError if it cannot be imported."""
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
                f"The judge {name} failed: {type(error).__name__}: {reason_of(error)}. The group was not scored, "
                "because a guess would count as a vote. Correct the function."
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
        raise ConfigError(f"answers.callable: {name} is not a function. Name a function.")
    return found  # type: ignore[no-any-return]  # just found to be callable
