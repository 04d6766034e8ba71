"""uvicorn's protocol with a time limit on a request's head, and with word of whether its last reply was received."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from restrain_openrlhf.reward.last_reply import EXTENSION, LastReply


def connection(head_seconds: float) -> type[HttpToolsProtocol]:
    """uvicorn's own protocol, but a connection that sends no whole request head in this time is closed."""

    class Connection(HttpToolsProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.transport = self._last = LastReply(transport, self.loop)
            self._late = self.loop.call_later(head_seconds, transport.close)

        def data_received(self, data: bytes) -> None:
            if not self._last.lingers:
                super().data_received(data)

        def eof_received(self) -> None:
            super().eof_received()
            self._last.client_ended()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self.scope["extensions"] = {EXTENSION: self._last}  # type: ignore[dict-item]

        def on_headers_complete(self) -> None:
            self._late.cancel()
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._late.cancel()
            super().connection_lost(exc)
            self._last.lost(exc)

    return Connection
