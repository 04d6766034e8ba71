"""Ends of a connection that a client at the service's door cannot bring about (the others: test_retries.py)."""

import asyncio
import contextlib
import select
import socket
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

pytest.importorskip("fastapi", reason="needs the web stack: pip install restrain-openrlhf[serve]")

from restrain_openrlhf.reward import last_reply
from restrain_openrlhf.reward.last_reply import LastReply

pytestmark = pytest.mark.timeout(60)

LARGE = 8 << 20


@dataclass
class Server(asyncio.Protocol):
    """Answers what it is sent with `reply`, over a LastReply; `received` is what it was told."""

    reply: bytes = b"reply"
    received: "asyncio.Future[bool]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    last: LastReply | None = None
    before_close: Callable[[], object] = lambda: None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.last = LastReply(transport, asyncio.get_running_loop())

    def data_received(self, data: bytes) -> None:
        asyncio.get_running_loop().create_task(self.answer())

    async def answer(self) -> None:
        await self.gate.wait()
        self.last.begin()
        self.last.write(self.reply[:3])
        self.last.write(self.reply[3:])
        self.before_close()
        self.last.close()
        self.last.when_received(self.received.set_result)

    def eof_received(self) -> None:
        self.last.client_ended()

    def connection_lost(self, exc: Exception | None) -> None:
        self.last.lost(exc)


@contextlib.asynccontextmanager
async def asked(server: Server) -> AsyncIterator[socket.socket]:
    """A client's socket whose request lies before the server, which waits at its gate."""
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(lambda: server, "127.0.0.1", 0)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    await loop.sock_connect(client, listening.sockets[0].getsockname())
    await loop.sock_sendall(client, b"request")
    try:
        yield client
    finally:
        client.close()
        listening.close()


def told(client: Callable[[socket.socket, Server], object], reply: bytes = b"reply") -> bool:
    """What the server is told when the client does this."""

    async def scenario() -> bool:
        server = Server(reply)
        async with asked(server) as connection:
            done = client(connection, server)
            if asyncio.iscoroutine(done):
                await done
            return await asyncio.wait_for(server.received, 30)

    return asyncio.run(scenario())


async def read_all(connection: socket.socket, server: Server) -> None:
    server.gate.set()
    loop = asyncio.get_running_loop()
    while await loop.sock_recv(connection, 65536):
        pass
    connection.close()


def test_a_client_that_read_all_of_many_packets_and_closed_received_it():
    assert told(read_all, bytes(LARGE))


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for what is unacknowledged")
def test_a_client_that_ended_in_good_order_before_all_arrived_did_not():
    """Its end crossed the reply on the way: what it had not acknowledged then it never read."""

    async def leave(connection: socket.socket, server: Server) -> None:
        server.gate.set()
        while not select.select([connection], [], [], 0)[0]:
            await asyncio.sleep(0.01)
        connection.shutdown(socket.SHUT_WR)
        await asyncio.sleep(0.2)

    assert not told(leave, bytes(LARGE))


def test_a_client_that_never_reads_is_given_up(monkeypatch):
    monkeypatch.setattr(last_reply, "LINGER_SECONDS", 0.2)

    async def wait(connection: socket.socket, server: Server) -> None:
        server.gate.set()
        await server.received

    assert not told(wait)


def test_a_service_that_stops_leaves_the_reply_to_who_is_reading():
    """uvicorn closes at its end what is still open; the client, which has the reply, then reads it."""

    async def stop(connection: socket.socket, server: Server) -> None:
        server.gate.set()
        await asyncio.sleep(0.05)
        server.last.close()
        await server.received
        assert await asyncio.get_running_loop().sock_recv(connection, 100) == b"reply"

    assert told(stop)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux holds it back")
def test_the_reply_waits_for_our_end_and_goes_with_it():
    """A proxy that sees both at once has no connection left to reset."""
    arrived: list[list[socket.socket]] = []

    async def watch(connection: socket.socket, server: Server) -> None:
        server.before_close = lambda: arrived.append(select.select([connection], [], [], 0.02)[0])
        await read_all(connection, server)

    assert told(watch)
    assert arrived == [[]]
