"""Serves the page on this machine: its assets, summaries page by page, and one group's details when it is opened."""

import contextlib
import socket
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from restrain_openrlhf.errors import ConfigError, RestrainError
from restrain_openrlhf.view.html import ASSETS, SERVED_POLICY, served_page
from restrain_openrlhf.view.source import ViewedRun
from restrain_openrlhf.view.wire import as_json

LOCAL = "127.0.0.1"
HEADERS = {
    "Content-Security-Policy": f"{SERVED_POLICY}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    # A run goes on, and another run may be served here next.
    "Cache-Control": "no-store",
}


def application(run: ViewedRun, host: str = LOCAL) -> Starlette:
    """The page and its data. A request that names another host is refused: a foreign page may have sent it here."""

    def page(_: Request) -> Response:
        return HTMLResponse(served_page(run.material.name, run.material.notes, bool(run.material.gold.answers)))

    def groups(request: Request) -> Response:
        start = request.query_params.get("start", "0")
        if not start.isdecimal():
            raise HTTPException(400, "start must be a whole number.")
        return _json(as_json(run.page(int(start))))

    def details(request: Request) -> Response:
        found = run.details(request.path_params["step"], request.path_params["group"])
        if found is None:
            raise HTTPException(404, "No such group was kept. Load the page again.")
        return _json(as_json(found))

    return Starlette(
        routes=[
            Route("/", page),
            Route("/api/groups", groups),
            Route("/api/groups/{step:int}/{group:int}", details),
            Mount("/assets", StaticFiles(directory=ASSETS)),
        ],
        middleware=[
            Middleware(FixedHeaders),
            Middleware(TrustedHostMiddleware, allowed_hosts=allowed_hosts(host), www_redirect=False),
            Middleware(GZipMiddleware, minimum_size=2000),
        ],
        exception_handlers={RestrainError: _refusal},
    )


def allowed_hosts(host: str) -> list[str]:
    """The names under which the page may be asked for; a machine's own name where others may reach it."""
    return [LOCAL, "localhost", *([] if host in (LOCAL, "localhost") else [host, socket.gethostname()])]


def _json(text: str) -> Response:
    return Response(text, media_type="application/json")


def _refusal(_: Request, error: Exception) -> Response:
    return PlainTextResponse(str(error), 500)


class FixedHeaders:
    """Adds HEADERS to every response, errors and assets included."""

    def __init__(self, app: ASGIApp) -> None:
        """`app` is what answers."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._app(scope, receive, with_headers)


def serve(app: Starlette, host: str, port: int, tell: Callable[[str], None]) -> None:
    """Serve until Ctrl-C. `port` 0 takes a free one; `tell` gets the page's address once it can be asked for.

    Raises ConfigError where the address cannot be listened on.
    """
    try:
        listening = socket.create_server((host, port))
    except OSError as error:
        what = f"--host {host} --port {port}: cannot be listened on ({error.strerror})."
        raise ConfigError(f"{what} Choose another, or leave --port out for a free one.") from None
    tell(f"http://{host}:{listening.getsockname()[1]}/")
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, lifespan="off")
    config.timeout_graceful_shutdown = 1
    # uvicorn ends in order and then hands the signal on, for programs that have more to end.
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])
