"""Runs the service: builds its parts, listens, and on SIGTERM drains before it stops."""

import asyncio
import math
import resource
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

import uvicorn

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method import build
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reward.get_reward import GetReward
from restrain_openrlhf.reward.handlers import Service, application
from restrain_openrlhf.reward.logs import log, log_as_json
from restrain_openrlhf.reward.metrics import Metrics
from restrain_openrlhf.reward.scorer_worker import ScorerWorker
from restrain_openrlhf.reward.settings import ServiceConfig
from restrain_openrlhf.scoring import GroupScorer
from restrain_openrlhf.stop_tokens import StopTokens, stop_tokens

STOP_SECONDS = 10
SWEEP_TICKS = 5
# A step's rollouts knock at once; the kernel allows no more than net.core.somaxconn.
BACKLOG = 8192


def build_service(config: ServiceConfig, token: str | None) -> Service:
    """Raises a RestrainError where the method, the reference or the model's folder is wrong."""
    block, metrics = config.service, Metrics()
    scorer = GroupScorer(build(config.method), load_reference(config.reference) if config.reference else None)
    worker = ScorerWorker(scorer, metrics, ThreadPoolExecutor(block.limits.scoring_threads))
    ends = (block.end_of_text,) if isinstance(block.end_of_text, str) else block.end_of_text or ()
    tokens = stop_tokens(block.model) if block.model else StopTokens(ends)
    get_reward = GetReward(block.group_size, block, tokens, worker) if block.group_size else None
    service = Service(config, worker, get_reward, token)
    metrics.pending.set_function(lambda: service.pending)
    metrics.draining.set_function(lambda: service.draining)
    return service


def serve(config: ServiceConfig, token: str | None, host: str, port: int, tls: tuple[Path | None, Path | None]) -> None:
    """Serve until told to stop, by HTTPS where there is a certificate and its key (`tls`).

    Raises a RestrainError where the configuration, the address or the certificate cannot be used.
    """
    service = build_service(config, token)
    server, listening = DrainingServer(service, *tls), _listen(host, port)
    # Every pending request is an open socket: allow as many as the system lets us.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    log_as_json()
    log("starting", method=config.method.name, group_size=config.service.group_size, token=token is not None)
    asyncio.run(server.serve(sockets=[listening]))
    service.worker.pool.shutdown(wait=False, cancel_futures=True)
    log("stopped")


def _listen(host: str, port: int) -> socket.socket:
    family, flags = socket.AF_INET6 if ":" in host else socket.AF_INET, f"--host {host} --port {port}"
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        what = f"{flags}: cannot be listened on ({error.strerror}). Choose another, or end who has it."
        raise ConfigError(what) from None


class DrainingServer(uvicorn.Server):
    """The first SIGTERM or SIGINT drains: not ready, waiting groups complete, the rest is released. A second ends."""

    def __init__(self, service: Service, certificate: Path | None, key: Path | None) -> None:
        """Raises ConfigError where the certificate cannot be used."""
        config = uvicorn.Config(
            application(service),
            # asyncio accepts all that wait in one turn of the loop; uvloop accepts one, so that under load few get in.
            loop="asyncio",
            backlog=BACKLOG,
            ssl_certfile=certificate,
            ssl_keyfile=key,
            # A key with a password is refused, where OpenSSL would ask for it.
            ssl_keyfile_password="none",
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=STOP_SECONDS,
        )
        try:
            config.load()
        except OSError as error:
            flags = f"--tls-certificate {certificate} --tls-key {key}"
            raise ConfigError(
                f"{flags}: cannot be used ({error}). Give two PEM files, the key without password."
            ) from None
        super().__init__(config)
        self.service, self.drain_since = service, math.inf

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The signal handler."""
        self.should_exit = self.force_exit = self.service.draining
        self.service.draining = True

    async def on_tick(self, counter: int) -> bool:
        """What is done ten times a second. Returns whether to end."""
        now, timing, get_reward = time.monotonic(), self.service.config.service.timing, self.service.get_reward
        if get_reward is not None and counter % SWEEP_TICKS == 0:
            get_reward.collector.sweep(now)
        if self.service.draining and self.drain_since == math.inf:
            log("draining")
            self.drain_since = now + timing.drain_notice
        # Balancers get time to see that we are not ready; waiting groups get time to complete; the rest ask again.
        if now >= self.drain_since and (not self.service.pending or now >= self.drain_since + timing.drain):
            self.should_exit = True
            if get_reward is not None:
                get_reward.stop()
        return await super().on_tick(counter)
