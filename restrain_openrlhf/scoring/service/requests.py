"""What happens to every request: how its body and token are read, how it is refused, and what is logged and counted.

Neither the log (JSON lines on stderr) nor the Prometheus metrics have any text of a prompt or rollout.
"""

import asyncio
import base64
import json
import logging
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.process_collector import ProcessCollector
from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request

from restrain_openrlhf.errors import RestrainError
from restrain_openrlhf.method import GroupScore
from restrain_openrlhf.scoring.service.service_config import ServiceBlock
from restrain_openrlhf.scoring.wire import RewardRequest

SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)
SHARES = tuple(step / 10 for step in range(1, 11))
_LOG = logging.getLogger("restrain.service")
_LOG.setLevel(logging.INFO)


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


async def read_body(request: Request, block: ServiceBlock) -> RewardRequest:
    """The body. Raises RefusedError, which never quotes the input, or ClientDisconnect."""
    body, most = bytearray(), block.limits.body_bytes
    try:
        async with asyncio.timeout(block.timing.body):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise RefusedError(413, f"The body is larger than {most} bytes (service.limits.body_bytes).")
        return RewardRequest.model_validate_json(bytes(body))
    except TimeoutError:
        detail = f"The body did not arrive within {block.timing.body:g} s (service.timing.body)."
        raise RefusedError(408, detail) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where, status = ".".join(map(str, ("body", *first["loc"]))), 400 if first["type"] == "json_invalid" else 422
        raise RefusedError(status, f"{where}: {first['msg']}"[:300]) from None


def given_token(authorization: str) -> str | None:
    """The password (without one the user) of `Basic`, which aiohttp makes of http://user:TOKEN@host/; None if none."""
    scheme, _, value = authorization.partition(" ")
    try:
        user, colon, password = base64.b64decode(value.strip(), validate=True).decode("utf-8").partition(":")
    except ValueError:
        return None
    return (password or user) if colon and scheme.lower() == "basic" else None


def log(event: str, level: int = logging.INFO, error: Exception | None = None, **values: object) -> None:
    """Write one event with named values. Of an error, its type and the line that raised it are written."""
    _LOG.log(level, event, exc_info=error, extra={"values": values})


class JsonLines(logging.Handler):
    """Writes our events, and the records of uvicorn and asyncio as the event `server`."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record to the current sys.stderr, without an exception's message, which may quote a rollout."""
        other = {"event": "server", "logger": record.name, "message": record.getMessage().split("\n")[0]}
        event = {"event": record.msg, **record.values} if hasattr(record, "values") else other
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            frames = traceback.extract_tb(error.__traceback__)
            event |= {"exception": type(error).__name__, "where": [f"{at.filename}:{at.lineno}" for at in frames[-1:]]}
        line = {"time": round(time.time(), 3), "level": record.levelname.lower(), **event}
        print(json.dumps(line, default=str), file=sys.stderr, flush=True)


class Metrics:
    """All metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        self.requests = counter("restrain_requests", "Replies", ["path", "status"])
        self.reply_seconds = histogram("restrain_reply_seconds", "Request to reply", ["path"], buckets=SECONDS)
        self.pending = Gauge("restrain_pending_requests", "Requests that are not answered yet", registry=registry)
        self.slots = counter("restrain_slots", "Rollouts that took a slot of a group", ["kind"])
        self.gone = counter("restrain_gone_requests", "Connections closed by the client before the reply")
        self.held = counter("restrain_held_requests", "Requests told to come again after timing.hold")
        self.neutral = counter("restrain_neutral_rollouts", "Rollouts answered without an advantage")
        self.groups = counter("restrain_groups", "Groups by what became of them", ["outcome"])
        self.penalized = counter("restrain_penalized_groups", "Groups, each by its share of penalised rollouts")
        self.answers = counter("restrain_answers", "Rollouts by their answer", ["kind"])
        self.majority = histogram("restrain_majority_share", "Share of the commonest answer", buckets=SHARES)
        self.score_seconds = histogram("restrain_score_seconds", "Wait for a thread, and scoring", buckets=SECONDS)

    async def scored(self, work: Callable[[], GroupScore], truncated: int, outcome: str = "full") -> GroupScore:
        """The group that `work` scores in a thread, counted in the metrics.

        `truncated` is how many of its responses are truncated; `outcome` is "full" or "partial".
        """
        with self.groups.labels("failed").count_exceptions(), self.score_seconds.time():
            group = await asyncio.to_thread(work)
        self.groups.labels(outcome).inc()
        missing = group.votes.classes.count(None)
        kinds = {"given": len(group.answers) - missing, "missing": missing - truncated, "truncated": truncated}
        for kind, count in kinds.items():
            self.answers.labels(kind).inc(count)
        self.penalized.inc(group.penalized)
        self.majority.observe(group.votes.majority_count / group.votes.n)
        return group
