"""Serves the page on this machine: its assets, summaries page by page, and one group's details when it is opened."""

import contextlib
import socket

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

from restrain_openrlhf.commands.view.html import ASSETS, SERVED_POLICY, as_json, served_page
from restrain_openrlhf.commands.view.source import ViewedRun
from restrain_openrlhf.errors import ConfigError, RestrainError

LOCAL = "127.0.0.1"
HEADERS = {
    "Content-Security-Policy": f"{SERVED_POLICY}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    # A run goes on, and another run may be served here next.
    "Cache-Control": "no-store",
}


def application(run: ViewedRun) -> Starlette:
    """The page and its data. A request that names another host is refused: a foreign page may have sent it here."""

    def page(_: Request) -> Response:
        return HTMLResponse(served_page(run.material))

    def groups(request: Request) -> Response:
        start = request.query_params.get("start", "0")
        if not start.isdecimal():
            raise HTTPException(400, "start must be a whole number.")
        return Response(as_json(run.page(int(start))), media_type="application/json")

    def details(request: Request) -> Response:
        found = run.details(request.path_params["step"], request.path_params["group"])
        if found is None:
            raise HTTPException(404, "No such group was kept. Load the page again.")
        return Response(as_json(found), media_type="application/json")

    def refusal(_: Request, error: Exception) -> Response:
        return PlainTextResponse(str(error), 500)

    return Starlette(
        routes=[
            Route("/", page),
            Route("/api/groups", groups),
            Route("/api/groups/{step:int}/{group:int}", details),
            Mount("/assets", StaticFiles(directory=ASSETS)),
        ],
        middleware=[
            Middleware(BaseHTTPMiddleware, dispatch=_with_headers),
            Middleware(TrustedHostMiddleware, allowed_hosts=[LOCAL, "localhost"], www_redirect=False),
            Middleware(GZipMiddleware, minimum_size=2000),
        ],
        exception_handlers={RestrainError: refusal},
    )


async def _with_headers(request: Request, answer: RequestResponseEndpoint) -> Response:
    """Adds HEADERS to every response, errors and assets included."""
    response = await answer(request)
    response.headers.update(HEADERS)
    return response


def serve(app: Starlette, port: int) -> None:
    """Print the page's address and serve it until Ctrl-C. `port` 0 takes a free one.

    Raises ConfigError where the port cannot be listened on.
    """
    try:
        listening = socket.create_server((LOCAL, port))
    except OSError as error:
        what = f"--port {port}: cannot be listened on ({error.strerror})."
        raise ConfigError(f"{what} Choose another, or leave --port out for a free one.") from None
    address = f"http://{LOCAL}:{listening.getsockname()[1]}/"
    Console(soft_wrap=True, highlight=False).print(f"{address} (Ctrl-C ends it)", markup=False)
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, lifespan="off")
    config.timeout_graceful_shutdown = 1
    # uvicorn ends in order and then hands the signal on, for programs that have more to end.
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])
