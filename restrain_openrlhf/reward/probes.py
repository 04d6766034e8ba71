"""What probes and Prometheus are told, on the main port and, by a thread of its own, on a port of their own."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse

from restrain_openrlhf.reward import protocol
from restrain_openrlhf.reward.listening import http
from restrain_openrlhf.reward.metrics import Metrics

PULSE_SECONDS = 0.25
HEAD_SECONDS = 10.0
NOT_WELL: dict[int | str, dict[str, Any]] = {503: {"model": protocol.Health}}


@dataclass
class State:
    """What the probes tell; written by the main loop, read by any thread.

    A store that is away later does not make a replica unready: its requests wait, which costs a client nothing, and
    a balancer without any ready replica would refuse them, which soon costs it all its tries. A main loop that has not
    turned for `stall` seconds counts as dead.
    """

    stall: float
    listening: bool = False
    store_answered: bool = False
    draining: bool = False
    pulse: float = field(default_factory=time.monotonic)

    def store_did_answer(self) -> None:
        """The store has answered."""
        self.store_answered = True

    @property
    def started(self) -> bool:
        """Whether requests can be served."""
        return self.listening and self.store_answered

    @property
    def silence(self) -> float:
        """Seconds since the main loop last turned."""
        return time.monotonic() - self.pulse

    @property
    def stalled(self) -> bool:
        """Whether the main loop has been silent for too long."""
        return self.silence > self.stall


@asynccontextmanager
async def pulse(state: State) -> AsyncIterator[None]:
    """Leave the running loop's pulse in the state."""

    async def beat() -> None:
        while True:
            state.pulse = time.monotonic()
            await asyncio.sleep(PULSE_SECONDS)

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def add_probes(app: FastAPI, metrics: Metrics, state: State) -> None:
    """The four routes; each answers from memory."""

    @app.get("/healthz", response_model=protocol.Health, responses=NOT_WELL)
    async def healthz() -> Response:
        """Liveness: the main loop turns."""
        return _health(not state.stalled, "alive", "stalled")

    @app.get("/startupz", response_model=protocol.Health, responses=NOT_WELL)
    async def startupz() -> Response:
        """Startup: method and reference are loaded, and the store has answered once."""
        return _health(state.started, "started", "starting")

    @app.get("/readyz", response_model=protocol.Health, responses=NOT_WELL)
    async def readyz() -> Response:
        """Readiness: started, alive, and not draining."""
        ready = state.started and not state.draining and not state.stalled
        why_not = "draining" if state.draining else "stalled" if state.started else "starting"
        return _health(ready, "ready", why_not)

    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics_text() -> Response:
        """Prometheus."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")


def _health(well: bool, good: str, bad: str) -> JSONResponse:
    return JSONResponse({"status": good if well else bad}, status_code=200 if well else 503)


@contextmanager
def side_door(listening: socket.socket, metrics: Metrics, state: State) -> Iterator[None]:
    """Answer the probes at this socket meanwhile, by a thread with a loop of its own.

    On the main port a probe queues behind every request that came before it; here it waits for nothing but its turn of
    the interpreter, so that a liveness probe does not kill the replica for having much to do.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    add_probes(app, metrics, state)
    server = uvicorn.Server(http(app, HEAD_SECONDS, stop_seconds=1))
    thread = threading.Thread(target=server.run, args=([listening],), name="probes", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()
