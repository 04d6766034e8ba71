"""Runs the service: listens, and on SIGTERM drains before it stops."""

import asyncio
import gc
import logging
import math
import resource
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

import uvicorn

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.scoring.service.handlers import Service, application
from restrain_openrlhf.scoring.service.service_config import ServiceConfig
from restrain_openrlhf.scoring.service.telemetry import JsonLines, log

# All rollouts of a step connect at the same time. The kernel caps this number at net.core.somaxconn.
BACKLOG = 8192


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
        runner.get_loop().set_default_executor(ThreadPoolExecutor(config.service.limits.scoring_threads))
        runner.run(server.serve(sockets=[listening]))
    log("stopped")


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
        self.service, self.drain_since = service, math.inf

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.should_exit = self.force_exit = self.service.draining
        self.service.draining = True

    async def on_tick(self, counter: int) -> bool:
        """uvicorn's hook, called ten times a second. Returns whether to end."""
        now, timing = time.monotonic(), self.service.config.service.timing
        collector = self.service.get_reward.collector
        for key in tuple(collector.groups) if counter % 5 == 0 else ():
            collector.sweep(key, now)
        if self.service.draining and self.drain_since == math.inf:
            log("draining")
            self.drain_since = now + timing.drain_notice
        # First load balancers get time to see that the service is not ready, then waiting groups get time to complete.
        if now >= self.drain_since and (not self.service.pending or now >= self.drain_since + timing.drain):
            self.should_exit = True
            self.service.get_reward.stop()
        return await super().on_tick(counter)
