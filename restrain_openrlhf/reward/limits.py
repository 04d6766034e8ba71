"""What a request may cost: admission before its body is read, the body's size and time, and the time of the reply."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from restrain_openrlhf.reward.garbage import Load
from restrain_openrlhf.reward.logs import Log, where
from restrain_openrlhf.reward.metrics import Metrics

# Requests of these paths hold memory while they wait.
COSTLY_PATHS = frozenset({"/get_reward", "/v1/score"})
KNOWN_PATHS = COSTLY_PATHS | {"/healthz", "/readyz", "/startupz", "/metrics", "/docs", "/openapi.json"}
REPLY_SECONDS = 60.0
HTTP_OK = 200


class Refusal(HTTPException):
    """A request that is answered with this status and reason instead of being served."""

    def __init__(self, status: int, detail: str, retry: bool = False) -> None:
        super().__init__(status, detail, {"Connection": "close", **({"Retry-After": "1"} if retry else {})})

    def response(self) -> JSONResponse:
        """The reply."""
        return JSONResponse({"detail": self.detail}, status_code=self.status_code, headers=self.headers)


@dataclass
class Gate:
    """Admits requests, meters them, and turns refusals and failures into clear replies.

    OpenRLHF's client makes five tries, one second apart, whatever the reply says. So a full service does not refuse
    at once: it leaves the request unread (which costs it no memory) until there is room, and refuses only then.
    """

    app: ASGIApp
    metrics: Metrics
    log: Log
    pending: int
    admission_seconds: float
    body_bytes: int
    body_seconds: float
    load: Load = field(default_factory=Load)
    _room: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._room = asyncio.Semaphore(self.pending)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        reply = _Reply(send)
        start = time.perf_counter()
        try:
            await self._serve(scope, receive, reply)
        except Refusal as refusal:
            if not reply.status:
                await refusal.response()(scope, receive, reply)
        except OSError:
            self.metrics.gone.inc()
        except Exception as error:  # noqa: BLE001 - the client gets no stack trace, and one bad request ends no other
            self.log.error("request_failed", path=scope["path"], kind=type(error).__name__, where=where(error))
            if not reply.status:
                await Refusal(500, "The service failed on this request; its log says more.").response()(
                    scope, receive, reply
                )
        self._count(scope, reply.status, time.perf_counter() - start)

    async def _serve(self, scope: Scope, receive: Receive, reply: Send) -> None:
        if scope["path"] not in COSTLY_PATHS:
            await self.app(scope, receive, reply)
            return
        async with self._admitted():
            length = Headers(scope=scope).get("content-length", "0")
            if length.isdigit() and int(length) > self.body_bytes:
                raise self._too_large()
            await self.app(scope, self._limited(receive), reply)

    @asynccontextmanager
    async def _admitted(self) -> AsyncIterator[None]:
        try:
            with self.metrics.queued.track_inprogress():
                async with asyncio.timeout(self.admission_seconds):
                    await self._room.acquire()
        except TimeoutError:
            raise Refusal(503, f"{self.pending} requests are pending already. Try again.", retry=True) from None
        try:
            self.load.pending += 1
            with self.metrics.pending.track_inprogress():
                yield
        finally:
            self.load.pending -= 1
            self.load.ended += 1
            self._room.release()

    def _limited(self, receive: Receive) -> Receive:
        read, complete, until = 0, False, asyncio.get_running_loop().time() + self.body_seconds

        async def limited() -> Message:
            nonlocal read, complete
            if complete:
                return await receive()
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                raise Refusal(408, f"The body did not come within {self.body_seconds:g} s.") from None
            read += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if read > self.body_bytes:
                raise self._too_large()
            return message

        return limited

    def _too_large(self) -> Refusal:
        return Refusal(413, f"The body is larger than {self.body_bytes} bytes (service.limits.body_bytes).")

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        path = scope["path"] if scope["path"] in KNOWN_PATHS else "other"
        self.metrics.requests.labels(path, str(status or "gone")).inc()
        self.metrics.reply_seconds.labels(path).observe(seconds)
        if path in COSTLY_PATHS and status != HTTP_OK:
            self.log.info("refused", path=path, status=status, seconds=round(seconds, 3))


class _Reply:
    """Sends on, remembers the status, and does not wait for ever for a client that does not read."""

    def __init__(self, send: Send) -> None:
        self.send, self.status = send, 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        async with asyncio.timeout(REPLY_SECONDS):
            await self.send(message)
