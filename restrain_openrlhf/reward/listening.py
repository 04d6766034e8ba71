"""Where and how HTTP is listened for, on the main port and on the probes' own."""

import socket
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.reward.connection import connection

KEEP_ALIVE_SECONDS = 10
# Connections that may wait to be accepted; the kernel allows no more than net.core.somaxconn.
BACKLOG = 8192


@dataclass(frozen=True)
class Address:
    """Where to listen. `shared`: other processes may listen there too (SO_REUSEPORT), to take over from this one.

    `probe_port` is the probes' own.
    """

    host: str
    port: int
    probe_port: int | None = None
    shared: bool = False

    def __post_init__(self) -> None:
        """Raises ConfigError where both ports are one."""
        if self.port == self.probe_port:
            raise ConfigError(f"--probe-port {self.port}: is --port already. Choose another.")

    def listen(self) -> socket.socket:
        """A listening socket. Raises ConfigError where there cannot be one."""
        return self._listen("--port", self.port)

    def listen_for_probes(self) -> socket.socket | None:
        """A listening socket, None where probes have no port of their own. Raises as `listen`."""
        return None if self.probe_port is None else self._listen("--probe-port", self.probe_port)

    def _listen(self, flag: str, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            return socket.create_server((self.host, port), family=family, backlog=BACKLOG, reuse_port=self.shared)
        except OSError as error:
            raise ConfigError(
                f"--host {self.host} {flag} {port}: cannot be listened on ({error.strerror}). Choose another, or "
                "end who has it."
            ) from None


def http(app: ASGIApp, head_seconds: float, stop_seconds: int) -> uvicorn.Config:
    """uvicorn as we run it: quiet, and with limits on a request's head and on the end."""
    return uvicorn.Config(
        app,
        loop="asyncio",
        # asyncio accepts all that wait in one turn of the loop; uvloop accepts one, so that under load few get in.
        backlog=BACKLOG,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        http=connection(head_seconds),
        ws="none",
        lifespan="off",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=stop_seconds,
    )
