"""Real services for the tests: `restrain serve` in processes of their own."""

import contextlib
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.processes import free_port

END = "<|im_end|>"
# A connection for each request, as OpenRLHF's client does it.
NO_KEEP_ALIVE = httpx.Limits(max_connections=None, max_keepalive_connections=0)
NEEDED = "needs the web stack: pip install restrain-openrlhf[service]"


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

    @cached_property
    def http(self) -> httpx.Client:
        """For requests one at a time; paths are relative to the service."""
        return httpx.Client(base_url=self.url, timeout=60, limits=NO_KEEP_ALIVE)

    def metric(self, name: str) -> float:
        """The sum of a metric, or of one of its children where labels are given."""
        lines = self.http.get("/metrics").text.splitlines()
        return sum(float(line.split()[1]) for line in lines if line.startswith((name + " ", name + "{")))

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def wait_until_ready(self, seconds: float = 120) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                if self.http.get("/readyz").status_code == 200:
                    return
            time.sleep(0.02)
        raise AssertionError(f"the service is not ready: {self.log.read_text()}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass
class Services:
    """Starts services in a folder, and ends them all."""

    folder: Path
    replicas: list[Replica] = field(default_factory=list)

    def start(self, **options: Any) -> Replica:
        """A service that is ready; options are those of `launch`."""
        replica = self.launch(**options)
        replica.wait_until_ready()
        return replica

    def launch(
        self,
        port: int | None = None,
        token: str | None = None,
        method: Any = None,
        options: Sequence[str] = (),
        reference: str | None = None,
        others: Mapping[str, Any] | None = None,
        **service: Any,
    ) -> Replica:
        """A service that begins; `service` are the keys of its block, `others` those beside it, `options` further words
        of its command line."""
        port = port or free_port()
        config = self.folder / f"{len(self.replicas)}.yaml"
        block = {"group_size": 4, "end_of_text": END, **service}
        document = {"method": method or {"name": "ttrl"}, "service": block, **(others or {})}
        config.write_text(yaml.safe_dump(document | ({"reference": reference} if reference else {})))
        words = ["serve", "--config", str(config), "--port", str(port), *options]
        environment = {**os.environ, **({"RESTRAIN_TOKEN": token} if token else {})}
        log = config.with_suffix(".log")
        with log.open("wb") as stderr:
            command = [sys.executable, "-m", "restrain_openrlhf.commands.main", *words]
            process = subprocess.Popen(command, stderr=stderr, env=environment)
        self.replicas.append(Replica(port, process, log))
        return self.replicas[-1]

    def end(self) -> None:
        for replica in self.replicas:
            if replica.process.poll() is None:
                replica.kill()


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    pytest.importorskip("uvicorn", reason=NEEDED)
    running = Services(tmp_path)
    yield running
    running.end()


@pytest.fixture(scope="session")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Replica]]:
    """One service per configuration for all tests that do not end it.

    Each test asks it with prompts of its own (`prompt`), counts from where the counters stand (`Since`), and leaves
    nobody waiting.
    """
    pytest.importorskip("uvicorn", reason=NEEDED)
    running = Services(tmp_path_factory.mktemp("services"))
    started: dict[str, Replica] = {}

    def start(**options: Any) -> Replica:
        key = repr(sorted(options.items()))
        if key not in started:
            started[key] = running.start(**options)
        return started[key]

    yield start
    running.end()


@pytest.fixture
def prompt() -> str:
    """A prompt that no other test uses."""
    return f"Problem {secrets.token_hex(8)}: "
