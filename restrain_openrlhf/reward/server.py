"""Runs the service: builds its parts, listens, and on SIGTERM drains before it stops."""

import asyncio
import logging
import resource
import secrets
import signal
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method import build
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reward.front import Front
from restrain_openrlhf.reward.garbage import collecting
from restrain_openrlhf.reward.housekeeping import keeping_house
from restrain_openrlhf.reward.judge import Judge
from restrain_openrlhf.reward.limits import Gate
from restrain_openrlhf.reward.listening import Address, http
from restrain_openrlhf.reward.logs import Forward, Log
from restrain_openrlhf.reward.metrics import Metrics
from restrain_openrlhf.reward.probes import State, pulse, side_door
from restrain_openrlhf.reward.rendezvous import Rendezvous
from restrain_openrlhf.reward.seating import Rules
from restrain_openrlhf.reward.security import TokenGate
from restrain_openrlhf.reward.service import application
from restrain_openrlhf.reward.settings import ServiceConfig
from restrain_openrlhf.reward.store import MemoryStore, Store
from restrain_openrlhf.reward.transcript import ResponseReader, reader_of_model
from restrain_openrlhf.scoring import GroupScorer

MEMORY = "memory"
STOP_SECONDS = 10
SETTLE_SECONDS = 5.0


@dataclass
class Service:
    """All parts of one replica; `app` is what is served."""

    app: Gate
    rendezvous: Rendezvous
    judge: Judge
    metrics: Metrics
    state: State
    log: Log


def build_service(config: ServiceConfig, store_url: str, token: str | None) -> Service:
    """Raises a RestrainError where the method, the reference, the model's folder or the store's URL is wrong."""
    block = config.service
    log, metrics, state = Log(secrets.token_hex(6)), Metrics(), State(block.timing.stall)
    metrics.silence.set_function(lambda: state.silence)
    scorer = GroupScorer(build(config.method), load_reference(config.reference) if config.reference else None)
    judge = Judge(scorer, reader(config), metrics, log, block.limits.scoring_threads, block.stragglers == "neutral")
    timing = block.timing
    rules = Rules(block.group_size, timing.deadline, timing.retake, timing.keep)
    rendezvous = Rendezvous(store(store_url, rules), judge.score_group, rules, metrics, log, replica=log.replica)
    evaluates = block.labelled_rows == "evaluate" and not scorer.method.reads_gold
    front = Front(rendezvous, judge, metrics, evaluates, block.reward, timing.hold)
    app: ASGIApp = application(front, judge, metrics, block.limits, state, token is not None)
    app = TokenGate(app, token) if token else app
    limits = block.limits
    gate = Gate(app, metrics, log, limits.pending, timing.admission, limits.body_bytes, timing.body)
    return Service(gate, rendezvous, judge, metrics, state, log)


def reader(config: ServiceConfig) -> ResponseReader:
    """How responses are read. Raises ConfigError where the model's folder does not say how one ends."""
    block = config.service
    return reader_of_model(block.model) if block.model else ResponseReader(block.end_of_text or ())


def store(url: str, rules: Rules) -> Store:
    """The store that --store names. Raises ConfigError for anything else."""
    if url == MEMORY:
        return MemoryStore()
    if not url.startswith(("redis://", "rediss://", "unix://")):
        raise ConfigError("--store: must be memory, or a redis://, rediss:// or unix:// URL.")
    from restrain_openrlhf.reward.redis_store import RedisStore  # noqa: PLC0415 - needed only with Redis

    return RedisStore.at(url, keep=rules.deadline + rules.keep)


def serve(config: ServiceConfig, address: Address, store_url: str, token: str | None) -> None:
    """Serve until told to stop. Raises ConfigError where the address cannot be listened on."""
    raise_file_limit()
    asyncio.run(_serve(config, address, store_url, token))


async def _serve(config: ServiceConfig, address: Address, store_url: str, token: str | None) -> None:
    service = build_service(config, store_url, token)
    forward = Forward(service.log)
    logging.basicConfig(handlers=[forward], level=logging.WARNING, force=True)
    service.log.info(
        "starting", method=config.method.name, group_size=config.service.group_size, token=token is not None
    )
    if not token:
        service.log.warning("open", problem="No token is set: whoever reaches the port may ask.")
    listening, for_probes = address.listen(), address.listen_for_probes()
    async with AsyncExitStack() as meanwhile:
        await meanwhile.enter_async_context(pulse(service.state))
        await meanwhile.enter_async_context(collecting(service.app.load))
        if for_probes is not None:
            meanwhile.enter_context(side_door(for_probes, service.metrics, service.state))
        await meanwhile.enter_async_context(keeping_house(service.rendezvous, service.state.store_did_answer))
        await DrainingServer(service, config).serve(sockets=[listening])
        await service.rendezvous.settled(SETTLE_SECONDS)
    service.judge.close()
    service.log.info("stopped")


class DrainingServer(uvicorn.Server):
    """The first SIGTERM or SIGINT drains: not ready, waiting groups complete, the rest is released. A second ends."""

    def __init__(self, service: Service, config: ServiceConfig) -> None:
        super().__init__(http(service.app, config.service.timing.head, STOP_SECONDS))
        self.service, self.timing = service, config.service.timing
        self._drain: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve, and say so."""
        await super().startup(sockets)
        self.service.state.listening = self.started
        self.service.log.info("listening")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The signal handler."""
        if self._drain is not None:
            self.should_exit = True
            return
        self.service.state.draining = True
        self.service.metrics.draining.set(1)
        self._drain = asyncio.get_event_loop().create_task(self._drain_and_stop(signal.Signals(sig).name))

    async def _drain_and_stop(self, why: str) -> None:
        """Balancers get time to see that we are not ready; waiting groups get time to complete; the rest ask again."""
        self.service.log.info("draining", signal=why)
        await asyncio.sleep(self.timing.drain_notice)
        until = asyncio.get_running_loop().time() + self.timing.drain
        while self.service.rendezvous.waits and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.05)
        self.service.rendezvous.stop()
        self.should_exit = True


def raise_file_limit() -> None:
    """Every pending request is an open socket: allow as many as the system lets us."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
