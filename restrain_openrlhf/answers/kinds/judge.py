"""Asks the user's own judge which answers are equal: a Python function, or a service behind HTTP."""

import json
import operator
import os
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from http.client import HTTPException
from importlib import import_module
from typing import Annotated, Any, ClassVar, Literal
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pydantic import Field, model_validator

from restrain_openrlhf.answers.kind import PROBLEM, Row, register
from restrain_openrlhf.answers.kinds.delegating import AS_WRITTEN, ComparedTexts
from restrain_openrlhf.errors import ConfigError, DataError, GraderError, RestrainError, reason_of

# Statuses of HTTP after which another try may succeed.
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 1.0, 60.0
# The questions whose verdicts a process keeps.
MOST_KNOWN = 1 << 14
NOT_SCORED = "The group was not scored, because a guess would count as a vote."


@register
class Judge(ComparedTexts):
    """Your own judge decides which answers are equal: a function (`callable`) or a service (`url`).

    A process asks the judge once for each group of different answers. A judge that fails, or says nothing that can be
    read, stops the scoring of the group with the reason: its silence is never a vote.
    """

    version: ClassVar[str] = "1"
    without_effect: ClassVar[frozenset[str]] = frozenset({"read", "token_variable", "seconds", "tries"})

    name: Literal["judge"] = "judge"
    callable: str | None = None
    """The judge as `package.module:function`, importable in every process. It gets a sorted list of different answers
    and the row, and returns a list of whole numbers, equal for equal answers."""
    url: str | None = None
    """The judge's address, http:// or https://, instead of `callable`."""
    send: tuple[str, ...] = ()
    """Columns of the row that the judge gets in addition to `problem`, such as a rubric."""
    token_variable: Annotated[str | None, Field(min_length=1)] = None
    """The environment variable that holds the judge's token, sent as `Authorization: Bearer`."""
    seconds: Annotated[float, Field(gt=0)] = 60.0
    """Seconds of silence after which a request has failed."""
    tries: Annotated[int, Field(ge=1, strict=True)] = 5
    """How often a request is tried if the judge is busy or unreachable. The waits start at a second and double, or are
    what Retry-After says."""
    revision: str = ""
    """Any text that names the judge's version. Change it with the judge, so that votes by the old one are refused."""

    @model_validator(mode="after")
    def _one_judge(self) -> "Judge":
        place = urlsplit(self.url or "http://none")
        if (self.callable is None) == (self.url is None):
            raise ValueError("name the judge either under callable or under url, not under both")
        if place.scheme not in ("http", "https") or not place.hostname:
            raise ValueError(f"url: {self.url} must start with http:// or https:// and name a host")
        if place.username or place.password:
            raise ValueError(
                "url must not contain a user name or a password, which would be stored with the run; put a token into "
                "an environment variable and name that variable under token_variable"
            )
        return self

    def row_columns(self) -> frozenset[str]:
        """The columns that are sent to the judge, and those that `read` reads."""
        return super().row_columns() | frozenset(self.send)

    def check_machine(self) -> None:
        """Import the function, or find the token. The judge itself is not asked, because that may cost money."""
        super().check_machine()
        if self.callable is None:
            self.token()
        else:
            _function(self.callable)

    def check_row(self, row: Row) -> None:
        super().check_row(row)
        self._question([], row)

    def compared(self, texts: Sequence[str], row: Row) -> Sequence[int]:
        """The judge's classes. Raises GraderError if it gives none, and DataError if the row lacks a column."""
        # A verdict does not depend on the kind that reads, which may not be hashable.
        return _verdict(self.model_copy(update={"read": AS_WRITTEN}), self._question(texts, row))

    def token(self) -> str:
        """The token, empty if none is named.

        Raises ConfigError if it is missing or cannot be in a header; the error does not show it.
        """
        if self.token_variable is None:
            return ""
        token = os.environ.get(self.token_variable, "").strip()
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise ConfigError(
                f"The environment variable {self.token_variable}, which `answers.token_variable` names, holds no "
                "token in this process. Set it to one word of ASCII where the run starts, and on every worker."
            )
        return token

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
def _verdict(judge: Judge, question: str) -> tuple[int, ...]:
    """The class of each answer of a question. Raises GraderError if the reply is not as many whole numbers."""
    asked = json.loads(question)
    reply = _said(judge.callable, asked) if judge.callable is not None else _posted(judge, question)
    found = reply.get("classes") if isinstance(reply, Mapping) else None
    given = list(found) if isinstance(found, Iterable) and not isinstance(found, str | bytes | Mapping) else []
    with suppress(TypeError):
        numbers = tuple(operator.index(each) for each in given if not isinstance(each, bool))
        if len(numbers) == len(given) == len(asked["answers"]):
            return numbers
    raise GraderError(
        f"The judge replied {repr(reply)[:200]}; expected was `classes`: {len(asked['answers'])} whole numbers, equal "
        "numbers for equal answers. Correct the judge (docs/concepts/kinds.md)."
    )


def _said(name: str, asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the user's function says of a question. Raises GraderError if it fails."""
    function = _function(name)
    try:
        return {"classes": function(asked["answers"], asked["row"])}
    except RestrainError:
        raise
    except Exception as error:  # whatever a user's function raises is the reason that is told
        raise GraderError(
            f"The judge {name} failed: {type(error).__name__}: {reason_of(error)}. {NOT_SCORED} Correct the function."
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


class _NoRedirects(HTTPRedirectHandler):
    """Does not follow redirects, because the token would be sent wherever they lead."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_OPENER = build_opener(_NoRedirects)
# The run's seeded generator is left alone.
_JITTER = random.SystemRandom()


def _posted(judge: Judge, question: str) -> Any:
    """The service's reply to a question. Raises GraderError if it refuses, or every try fails."""
    request, failure, wait = _request(judge, question), "", 0.0
    for attempt in range(judge.tries):
        if attempt:
            time.sleep(max(wait, FIRST_WAIT_SECONDS * 2 ** (attempt - 1) * _JITTER.uniform(0.5, 1.5)))
        try:
            with _OPENER.open(request, timeout=judge.seconds) as response:
                return json.loads(response.read())
        except HTTPError as error:
            failure, wait = _status(error, judge.token()), _retry_after(error)
            if error.code not in PASSING:
                break
        except ValueError as error:
            failure = f"a reply that is not JSON ({reason_of(error)})"
            break
        except (OSError, HTTPException) as error:
            failure, wait = reason_of(error), 0.0
    place = urlsplit(request.full_url)
    raise GraderError(
        f"The judge at {place.scheme}://{place.netloc}{place.path} gave no verdict: {failure} (tries: {attempt + 1}). "
        f"{NOT_SCORED} Read the judge's own log, and start the run again when the judge answers."
    )


def _request(judge: Judge, question: str) -> Request:
    """The token is sent only in the header Authorization."""
    headers = {"Content-Type": "application/json"}
    if token := judge.token():
        headers["Authorization"] = f"Bearer {token}"
    return Request(str(judge.url), question.encode(), headers, method="POST")


def _status(error: HTTPError, token: str) -> str:
    """The status of a refusal, and the beginning of its text without the token."""
    text = str(error.reason)
    with error, suppress(OSError, HTTPException):
        text = error.read(300).decode(errors="replace") or text
    hidden = text.replace(token, "***") if token else text
    return f"status {error.code}: {reason_of(Exception(hidden))}"


def _retry_after(error: HTTPError) -> float:
    """The seconds of the header Retry-After, within bounds; 0 if it is absent or a date."""
    with suppress(ValueError):
        # In this order of arguments, NaN becomes 0.
        return min(max(0.0, float(error.headers.get("Retry-After", 0))), LONGEST_WAIT_SECONDS)
    return 0.0
