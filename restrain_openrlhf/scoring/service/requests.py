"""How a request is read or refused: its token, and its body (size, time and form)."""

import asyncio
import base64
import logging
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from restrain_openrlhf.errors import RestrainError
from restrain_openrlhf.scoring.service.service_config import ServiceBlock
from restrain_openrlhf.scoring.service.telemetry import log

Body = TypeVar("Body", bound=BaseModel)


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
        detail = f"The body did not arrive within {block.timing.body:g} s (service.timing.body)."
        raise RefusedError(408, detail) from None
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
