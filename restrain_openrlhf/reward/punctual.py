"""uvicorn's protocol with a time limit on a request's head: a connection that only stands there does not stay."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


def punctual(seconds: float) -> type[HttpToolsProtocol]:
    """uvicorn's own protocol, but a connection that sends no whole request head in this time is closed."""

    class Punctual(HttpToolsProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._late = self.loop.call_later(seconds, transport.close)

        def on_headers_complete(self) -> None:
            self._late.cancel()
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._late.cancel()
            super().connection_lost(exc)

    return Punctual
