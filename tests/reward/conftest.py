"""Real services for the tests: `restrain serve` in processes of their own, and a Redis where it is installed."""

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

END = "<|im_end|>"
TOKEN = "a-token-of-the-tests-0123456789"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@dataclass
class Replica:
    """A running `restrain serve`."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def reward_url(self) -> str:
        return f"{self.url}/get_reward"

    def metric(self, name: str) -> float:
        lines = httpx.get(f"{self.url}/metrics", timeout=30).text.splitlines()
        return sum(float(line.split()[1]) for line in lines if line.startswith((name + " ", name + "{")))

    def wait_for(self, name: str, value: float, seconds: float = 30) -> None:
        until = time.monotonic() + seconds
        while self.metric(name) < value:
            assert time.monotonic() < until, f"{name} stays at {self.metric(name)}, not {value}"
            time.sleep(0.05)

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


@dataclass
class Services:
    """Starts services in a folder, and ends them all."""

    folder: Path
    replicas: list[Replica] = field(default_factory=list)

    def start(
        self,
        store: str = "memory",
        port: int | None = None,
        token: str | None = None,
        method: Any = None,
        options: Sequence[str] = (),
        **service: Any,
    ) -> Replica:
        port = port or free_port()
        name = f"{port}-{len(self.replicas)}"
        config = self.folder / f"{name}.yaml"
        block = {"group_size": 4, "end_of_text": END, **service}
        config.write_text(yaml.safe_dump({"method": method or {"name": "ttrl"}, "service": block}))
        log = self.folder / f"{name}.log"
        command = [sys.executable, "-m", "restrain_openrlhf.cli.main", "serve", "--config", str(config)]
        environment = {**os.environ, **({"RESTRAIN_TOKEN": token} if token else {}), "RESTRAIN_STORE": store}
        with log.open("ab") as stderr:
            process = subprocess.Popen([*command, "--port", str(port), *options], stderr=stderr, env=environment)
        replica = Replica(port, process, log)
        self.replicas.append(replica)
        wait_until_ready(replica)
        return replica


def wait_until_ready(replica: Replica, seconds: float = 150) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and replica.process.poll() is None:
        # The port may be shared with another process, so the log is asked first.
        if not any(event["event"] == "listening" for event in replica.events()):
            time.sleep(0.05)
            continue
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{replica.url}/readyz", timeout=5).status_code == 200:
                return
        time.sleep(0.05)
    raise AssertionError(f"the service is not ready: {replica.log.read_text()}")


@contextlib.asynccontextmanager
async def round_robin(replicas: list[Replica]) -> AsyncIterator[str]:
    """The URL of a TCP balancer: connections go to the replicas in turn, past those that do not answer.

    The list may change meanwhile.
    """
    turn = itertools.count()

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        for _ in replicas:
            with contextlib.suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", replicas[next(turn) % len(replicas)].port)
        raise OSError("no replica answers")

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back_reader, back_writer = await connect()
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, back_writer), copy(back_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/get_reward"
    finally:
        server.close()


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    pytest.importorskip("fastapi", reason="needs the web stack: pip install restrain-openrlhf[serve]")
    running = Services(tmp_path)
    yield running
    for replica in running.replicas:
        if replica.process.poll() is None:
            replica.kill()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Replica]]:
    """One service per configuration for all tests that only ask it something; each test has prompts of its own."""
    pytest.importorskip("fastapi", reason="needs the web stack: pip install restrain-openrlhf[serve]")
    running = Services(tmp_path_factory.mktemp("services"))
    started: dict[str, Replica] = {}

    def start(**options: Any) -> Replica:
        key = repr(sorted(options.items()))
        if key not in started:
            started[key] = running.start(**options)
        return started[key]

    yield start
    for replica in running.replicas:
        replica.kill()


@dataclass
class Redis:
    """A real server that can be killed and started again; `durable`: it writes every change to disk."""

    folder: Path
    port: int
    durable: bool
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        durable = ["--appendonly", "yes", "--appendfsync", "always"] if self.durable else ["--appendonly", "no"]
        words = ["redis-server", "--port", str(self.port), "--save", "", "--dir", str(self.folder), *durable]
        self.process = subprocess.Popen([*words, "--logfile", str(self.folder / "redis.log")])
        while socket.socket().connect_ex(("127.0.0.1", self.port)):
            time.sleep(0.05)

    def kill(self) -> None:
        assert self.process
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start_redis(tmp_path: Path) -> Iterator[Callable[..., Redis]]:
    if not shutil.which("redis-server"):
        pytest.skip("needs redis-server (Debian: redis-server)")
    started: list[Redis] = []

    def start(durable: bool = True) -> Redis:
        server = Redis(tmp_path, free_port(), durable)
        server.start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.kill()


@pytest.fixture
def redis(start_redis: Callable[..., Redis]) -> Redis:
    return start_redis()


def rollout(prompt: str, answer: object, words: str = "", end: str = END, label: Any = "") -> dict[str, list[Any]]:
    """A request body as OpenRLHF's client makes it."""
    return {"query": [f"{prompt}{words}\\boxed{{{answer}}}{end}"], "prompts": [prompt], "labels": [label]}
