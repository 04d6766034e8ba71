"""uvicorn's protocol with a time limit on a request's head, and with word of whether a reply was received."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

EXTENSION = "restrain.receipt"
# A reset that says "not received" answers the reply's own packets. A later one is a proxy's that puts away an idle
# connection (seen of HAProxy after 15 seconds), and what it was sent long before came through. HAProxy also resets at
# once, which cannot be told apart here: docs/reward_service.md, under load.
RESET_SECONDS = 2.0

Told = Callable[[bool], None]


@dataclass(eq=False)
class Receipts:
    """Of one connection: who wants to know whether the reply sent last was received.

    A client that reads its reply closes the connection in good order or asks the next thing. One that gave up before,
    with the reply on its way, has its system reset the connection (RFC 9293, 3.10.7).
    """

    waiting: list[Told] = field(default_factory=list)
    ended: bool | None = None
    sent: float = 0.0
    clock: Callable[[], float] = time.monotonic

    def ask(self, told: Told) -> None:
        """Call it with the answer as soon as that is known."""
        if self.ended is None:
            self.sent = self.clock()
            self.waiting.append(told)
        else:
            told(self.ended)

    def tell(self, received: bool) -> None:
        """The connection showed whether what was sent came through."""
        waiting, self.waiting = self.waiting, []
        for told in waiting:
            told(received)

    def end(self, reset: bool) -> None:
        """The connection is over: in good order, or reset."""
        self.ended = not reset
        self.tell(not reset or self.clock() - self.sent > RESET_SECONDS)


def when_received(scope: Scope, told: Told) -> None:
    """Call it with whether the client received the reply just sent; at once where the server does not say."""
    receipts = scope.get("extensions", {}).get(EXTENSION)
    if receipts is None:
        told(True)
    else:
        receipts.ask(told)


def connection(head_seconds: float) -> type[HttpToolsProtocol]:
    """uvicorn's own protocol, but a connection that sends no whole request head in this time is closed."""

    class Connection(HttpToolsProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._receipts = Receipts()
            self._late = self.loop.call_later(head_seconds, transport.close)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._receipts.tell(True)
            self.scope["extensions"] = {EXTENSION: self._receipts}  # type: ignore[dict-item]

        def on_headers_complete(self) -> None:
            self._late.cancel()
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._late.cancel()
            super().connection_lost(exc)
            self._receipts.end(reset=exc is not None)

    return Connection
