"""How a request is read and refused: the body's size, time and form, and replies that say why."""

import asyncio
import logging
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from restrain_openrlhf.errors import RestrainError
from restrain_openrlhf.reward.logs import log
from restrain_openrlhf.reward.service_config import ServiceBlock

Body = TypeVar("Body", bound=BaseModel)


class RefusedError(RestrainError):
    """A request is answered with this status and reason instead of being served; `again`: come back soon."""

    def __init__(self, status: int, detail: str, again: bool = False) -> None:
        super().__init__(f"{detail} Ask again." if again else detail)
        self.status = status
        self.headers = {"Connection": "close", **({"Retry-After": "1"} if again else {})}


def refused(error: Exception) -> RefusedError:
    """What the client is told of an error: of one of ours its message, of any other only that the log has it."""
    if isinstance(error, ClientDisconnect):
        return RefusedError(499, "The client closed the connection; nobody reads this.")
    if isinstance(error, RestrainError):
        return error if isinstance(error, RefusedError) else RefusedError(409, str(error))
    log("failed", logging.ERROR, error)
    return RefusedError(500, "The service failed on this request; its log says more.")


async def read_body(request: Request, kind: type[Body], block: ServiceBlock) -> Body:
    """The body as `kind`. Raises RefusedError, which never repeats the input; ClientDisconnect where none comes."""
    body, most = bytearray(), block.limits.body_bytes
    try:
        async with asyncio.timeout(block.timing.body):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise RefusedError(413, f"The body is larger than {most} bytes (service.limits.body_bytes).")
        return kind.model_validate_json(bytes(body))
    except TimeoutError:
        raise RefusedError(408, f"The body did not come in {block.timing.body:g} s (service.timing.body).") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where, status = ".".join(map(str, ("body", *first["loc"]))), 400 if first["type"] == "json_invalid" else 422
        raise RefusedError(status, f"{where}: {first['msg']}"[:300]) from None
