"""Serves the page on this machine: its assets, summaries page by page, and one group's details when it is opened."""

import contextlib
import secrets
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import uvicorn
from rich.console import Console
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from restrain_openrlhf.commands.view.page import ASSETS, SERVED_POLICY, as_json, served_page
from restrain_openrlhf.commands.view.source import ViewedRuns
from restrain_openrlhf.errors import ConfigError, RestrainError

LOCAL = ("127.0.0.1", "localhost")
# Anybody may load the package's own assets without a token; the run's data need one.
PUBLIC = "/assets/"
HEADERS = {
    "Content-Security-Policy": f"{SERVED_POLICY}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    # A run may continue, and another run may be served at this address next.
    "Cache-Control": "no-store",
}


def application(runs: ViewedRuns, token: str | None = None) -> Starlette:
    """The page and its data, for requests with the token.

    Without a token, only requests that name a local host are answered.

    A web page of another site could have sent any other request here (DNS rebinding).
    """

    handlers = Handlers(runs)
    return Starlette(
        routes=[
            Route("/", handlers.page),
            Route("/api/groups", handlers.groups),
            Route("/api/groups/{run:int}/{step:int}/{group:int}", handlers.details),
            Route("/api/search", handlers.search),
            Mount("/assets", StaticFiles(directory=ASSETS)),
        ],
        middleware=[
            Middleware(BaseHTTPMiddleware, dispatch=_with_headers),
            Middleware(BaseHTTPMiddleware, dispatch=_for_whoever_has(token))
            if token
            else Middleware(TrustedHostMiddleware, allowed_hosts=LOCAL, www_redirect=False),
            # The quickest: at the level of 9 a group of six megabytes takes seconds.
            Middleware(GZipMiddleware, minimum_size=2000, compresslevel=1),
        ],
        exception_handlers={RestrainError: lambda _request, error: PlainTextResponse(str(error), 500)},
    )


@dataclass(frozen=True)
class Handlers:
    """What is answered at each address."""

    runs: ViewedRuns

    def page(self, _: Request) -> Response:
        return HTMLResponse(served_page(self.runs.material))

    def groups(self, request: Request) -> Response:
        """A page of summaries, from the step at place `start` on."""
        start = request.query_params.get("start", "0")
        if not start.isdecimal():
            raise HTTPException(400, "start must be a whole number.")
        return _json(self.runs.page(int(start)))

    def details(self, request: Request) -> Response:
        """One group in full."""
        found = self.runs.details(**request.path_params)
        if found is None:
            raise HTTPException(404, "No such group was kept. Load the page again.")
        return _json(found)

    def search(self, request: Request) -> Response:
        """The places of the groups that have a response with this `text`."""
        return _json(self.runs.places_with(request.query_params.get("text", "")))


def _json(data: Any) -> Response:
    return Response(as_json(data), media_type="application/json")


async def _with_headers(request: Request, answer: RequestResponseEndpoint) -> Response:
    """Add HEADERS to every response, errors and assets included."""
    response = await answer(request)
    response.headers.update(HEADERS)
    return response


def _for_whoever_has(token: str) -> Callable[[Request, RequestResponseEndpoint], Awaitable[Response]]:
    async def dispatch(request: Request, answer: RequestResponseEndpoint) -> Response:
        given = request.query_params.get("token", "")
        if request.url.path.startswith(PUBLIC) or secrets.compare_digest(given.encode(), token.encode()):
            return await answer(request)
        return PlainTextResponse("Open the address that `restrain view` printed: it has a token.", 403)

    return dispatch


def serve(runs: ViewedRuns, host: str, port: int) -> None:
    """Print the page's address and serve it until Ctrl-C. `port` 0 means a free one; other machines need a token.

    Raises ConfigError if the server cannot listen at that host and port.
    """
    try:
        listening = socket.create_server((host, port))
    except OSError as error:
        # Python adds the address that it tried.
        why = str(error.strerror).partition(" (while")[0]
        what = f"--host {host}{f' --port {port}' if port else ''}: the server cannot listen there ({why})."
        raise ConfigError(f"{what} Choose another host or port, or leave --port out for a free one.") from None
    token = None if host in LOCAL else secrets.token_urlsafe(16)
    own = f"http://{_reached_by(host)}:{listening.getsockname()[1]}/"
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{own}{f'?token={token}' if token else ''} (Ctrl-C ends it)", markup=False)
    if token:
        console.print("Warning: whoever has this address can read every response, and the network sees them in clear.")
    app = application(runs, token)
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, lifespan="off")
    config.timeout_graceful_shutdown = 1
    # uvicorn shuts down in order and then raises the signal again, for programs that have more to do.
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])


def _reached_by(host: str) -> str:
    """The host to put into the address.

    For 0.0.0.0 it is the address that this machine would send from; nothing is sent.
    """
    if host != "0.0.0.0":
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    return socket.gethostname()
