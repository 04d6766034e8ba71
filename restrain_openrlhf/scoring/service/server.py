"""The service: its HTTP application (rollouts, probes, metrics), and how it drains and stops."""

import asyncio
import gc
import hmac
import logging
import math
import resource
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import FrameType

import uvicorn
from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from restrain_openrlhf.data.identity import model_fingerprint
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.reference.artifact import SAMPLING, NeededReference, refuse_mismatch
from restrain_openrlhf.scoring import GroupScorer
from restrain_openrlhf.scoring.service.get_reward import GetReward
from restrain_openrlhf.scoring.service.requests import JsonLines, Metrics, RefusedError, given_token, log, refused
from restrain_openrlhf.scoring.service.service_config import ServiceConfig

# All rollouts of a step connect at the same time. The kernel caps this number at net.core.somaxconn.
BACKLOG = 8192
SCORING_THREADS = 4


@dataclass
class Service:
    """The state of the process. Raises a RestrainError if the method, the reference or the model is wrong."""

    config: ServiceConfig
    token: str | None
    pending: int = 0
    draining: bool = False

    def __post_init__(self) -> None:
        config = self.config
        scorer = GroupScorer.by(config.method, config.reference, config.answers, config.answer_rows)
        if scorer.reference is not None:
            # Requests do not say which model and sampling they use.
            block = config.service
            fingerprint = model_fingerprint(block.model) if block.model else None
            drawn = {name: getattr(block, name) for name in SAMPLING}
            needed = NeededReference(model_fingerprint=fingerprint, n=block.group_size, **drawn)
            refuse_mismatch(scorer.reference, needed.by(config.reference_n, config.reference_sampling))
        self.metrics = Metrics()
        self.get_reward = GetReward(config.service, scorer, self.metrics)
        self.metrics.pending.set_function(lambda: self.pending)

    async def answer(self, request: Request) -> Response:
        """The reply to a rollout, counted in the metrics. An error becomes a reply as well."""
        path, metrics = request.url.path, self.metrics
        self.pending += 1
        try:
            with metrics.reply_seconds.labels(path).time():
                self._refuse_strangers_and_crowds(request)
                reply = await self.get_reward.serve(request)
            response = Response(reply.model_dump_json(), media_type="application/json")
        except Exception as error:  # noqa: BLE001 - the client gets no stack trace, and one bad request ends no other
            refusal = refused(error)
            response = JSONResponse({"detail": str(refusal)}, refusal.status, refusal.headers)
        finally:
            self.pending -= 1
        metrics.requests.labels(path, str(response.status_code)).inc()
        return response

    def _refuse_strangers_and_crowds(self, request: Request) -> None:
        given = given_token(request.headers.get("authorization", "")) or ""
        if self.token is not None and not hmac.compare_digest(given.encode(), self.token.encode()):
            refusal = RefusedError(401, "Send the token in the URL: http://user:TOKEN@host.")
            refusal.headers["WWW-Authenticate"] = 'Basic realm="restrain"'
            raise refusal
        most = self.config.service.limits.pending
        if self.pending > most:
            raise RefusedError(503, f"{most} requests are pending already (service.limits.pending).", again=True)


def application(service: Service) -> Starlette:
    """The endpoint of the service, its probes and its metrics (docs/operations/reward_service.md)."""

    async def healthz(_request: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def readyz(_request: Request) -> Response:
        state, status = ("draining", 503) if service.draining else ("ready", 200)
        return JSONResponse({"status": state}, status)

    async def metrics(_request: Request) -> Response:
        return PlainTextResponse(generate_latest(service.metrics.registry))

    gets = [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)]
    return Starlette(routes=[Route("/get_reward", service.answer, methods=["POST"]), *gets])


class DrainingServer(uvicorn.Server):
    """The first SIGTERM or SIGINT drains the server, and a second one ends it.

    A draining server is not ready. It completes the groups that wait, and tells all other requests to ask again.
    """

    def __init__(self, service: Service) -> None:
        config = uvicorn.Config(
            application(service),
            # asyncio accepts all waiting connections in one turn of its loop. uvloop accepts one, too few under load.
            loop="asyncio",
            backlog=BACKLOG,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=10,
        )
        super().__init__(config)
        self.service, self.end = service, math.inf

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.should_exit = self.force_exit = self.service.draining
        self.service.draining = True

    async def on_tick(self, counter: int) -> bool:
        """uvicorn's hook, called ten times a second. Returns whether to end."""
        now, timing = time.monotonic(), self.service.config.service.timing
        collector = self.service.get_reward.collector
        for prompt in tuple(collector.groups) if counter % 5 == 0 else ():
            collector.sweep(prompt, now)
        if self.service.draining and self.end == math.inf:
            log("draining")
            self.end = now + timing.drain
        if self.service.draining and (not self.service.pending or now >= self.end):
            self.should_exit = True
            self.service.get_reward.stop()
        return await super().on_tick(counter)


def serve(config: ServiceConfig, token: str | None, host: str, port: int) -> None:
    """Serve until told to stop. Raises a RestrainError if the configuration or the address cannot be used."""
    server, family = DrainingServer(Service(config, token)), socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        what = f"--host {host} --port {port}: the server cannot listen there ({error.strerror})."
        raise ConfigError(f"{what} Choose another port, or stop the process that uses this one.") from None
    # Every pending request is an open socket, so allow as many as the system permits.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # With its default thresholds Python's garbage collector takes half of the time of a burst of requests.
    gc.set_threshold(50_000, 20, 10)
    logging.basicConfig(handlers=[JsonLines()], level=logging.WARNING, force=True)
    log("starting", method=config.method.name, group_size=config.service.group_size, token=token is not None)
    with asyncio.Runner() as runner:
        runner.get_loop().set_default_executor(ThreadPoolExecutor(SCORING_THREADS))
        runner.run(server.serve(sockets=[listening]))
    log("stopped")
