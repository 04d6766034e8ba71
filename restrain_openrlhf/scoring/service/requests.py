"""How a request is read or refused: its token, its body (size, time and form), and the final answer of a query."""

import asyncio
import base64
import logging
import re
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from restrain_openrlhf.answers import AnswerKind, Row
from restrain_openrlhf.errors import DataError, RestrainError
from restrain_openrlhf.scoring.service.service_config import ServiceBlock
from restrain_openrlhf.scoring.service.telemetry import log

Body = TypeVar("Body", bound=BaseModel)
# Characters of a prompt's end that must be in the query where the host has cut or changed the prompt's beginning.
PROMPT_END = 200


class RefusedError(RestrainError):
    """A request is answered with this status and reason instead of being served.

    `again` asks the client to come back.
    """

    def __init__(self, status: int, detail: str, again: bool = False) -> None:
        super().__init__(f"{detail} Ask again." if again else detail)
        self.status = status
        self.headers = {"Connection": "close", **({"Retry-After": "1"} if again else {})}


def refused(error: Exception) -> RefusedError:
    """The error that a client gets: one of ours with its message, and for any other only that the log says more."""
    if isinstance(error, ClientDisconnect):
        return RefusedError(499, "The client closed the connection; nobody reads this reply.")
    if isinstance(error, RestrainError):
        return error if isinstance(error, RefusedError) else RefusedError(409, str(error))
    log("failed", logging.ERROR, error)
    return RefusedError(500, "The service failed on this request; its log says more.")


async def read_body(request: Request, kind: type[Body], block: ServiceBlock) -> Body:
    """The body, parsed as `kind`. Raises RefusedError, which never quotes the input, or ClientDisconnect."""
    body, most = bytearray(), block.limits.body_bytes
    try:
        async with asyncio.timeout(block.timing.body):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise RefusedError(413, f"The body is larger than {most} bytes (service.limits.body_bytes).")
        return kind.model_validate_json(bytes(body))
    except TimeoutError:
        raise RefusedError(
            408, (f"The body did not arrive within {block.timing.body:g} s (service.timing.body).")
        ) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where, status = ".".join(map(str, ("body", *first["loc"]))), 400 if first["type"] == "json_invalid" else 422
        raise RefusedError(status, f"{where}: {first['msg']}"[:300]) from None


def given_token(authorization: str) -> str | None:
    """The token of `Bearer TOKEN`, or the password (without one the user) of `Basic`; None for anything else.

    OpenRLHF's client has no setting for headers, but aiohttp turns http://user:TOKEN@host/ into `Basic`.
    """
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() != "basic":
        return value.strip() if scheme.lower() == "bearer" else None
    try:
        user, colon, password = base64.b64decode(value.strip(), validate=True).decode("utf-8").partition(":")
    except ValueError:
        return None
    return (password or user) if colon else None


@dataclass(frozen=True)
class Response:
    """A response's final answer as written (None: missing), and whether the length limit cut the response off."""

    answer: str | None
    truncated: bool


def read_response(query: str, prompt: str, ends: tuple[str, ...], kind: AnswerKind, row: Row) -> Response:
    """The response in a query, which is the prompt and the response in one text.

    Raises DataError if the query does not begin with its prompt, and where the row cannot be used.

    The client does not say whether a response is truncated. A response that ended by itself ends with one of `ends`,
    because the client decodes with skip_special_tokens=False; every other one hit the length limit.
    """
    response = _after_prompt(query, prompt)
    marks = "|".join(map(re.escape, sorted(ends, key=len, reverse=True)))
    plain = re.sub(marks, "", response) if marks else response
    return Response(kind.extract(plain, row), truncated=bool(ends) and not response.endswith(ends))


def _after_prompt(query: str, prompt: str) -> str:
    # The host cuts the beginning off a prompt that is too long.
    known = prompt if query.startswith(prompt) else prompt[-PROMPT_END:]
    found = query.find(known)
    if found < 0:
        what = "The query does not begin with its prompt: the tokenizer changes the prompt's text when it encodes and"
        raise DataError(f"{what} decodes it. Use one that does not.")
    return query[found + len(known) :]
