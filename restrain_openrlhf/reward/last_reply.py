"""How a connection's last reply is sent so that the connection's end says whether it was received."""

import asyncio
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from fcntl import ioctl
from termios import TIOCOUTQ

from starlette.types import Scope

EXTENSION = "restrain.last_reply"
# A client that has not read its reply by then is not going to: OpenRLHF's gives up 180 seconds after it asked, and
# most of those it waited.
LINGER_SECONDS = 60.0

Told = Callable[[bool], None]


class LastReply(asyncio.Transport):
    """uvicorn's transport, but after `begin` its close ends our side only, in one packet with the reply, and waits.

    A client that read the reply then ends its side too, with everything acknowledged. One that gave up before, with
    the reply on its way or unread, has its system reset the connection (RFC 9293, 3.10.7). One packet, because a
    proxy that has to end a connection itself may reset it although it read the reply (HAProxy does, always).
    """

    def __init__(self, plain: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._plain, self._loop = plain, loop
        self._begun = self._ended_ours = False
        self._received: bool | None = None
        self._told: Told | None = None
        self._patience: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """The next reply is the last. What is written from now on waits for its end, to go with it."""
        self._begun = True
        if sys.platform == "linux" and not self._plain.is_closing():
            self._plain.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)

    def when_received(self, told: Told) -> None:
        """Call it with whether the client received the reply, as soon as that is known."""
        if self._received is None:
            self._told = told
        else:
            told(self._received)

    @property
    def lingers(self) -> bool:
        """Our side has ended; what the client still sends is of no interest."""
        return self._ended_ours

    def client_ended(self) -> None:
        """The client ended its side: before the reply was written, before it arrived, or having read it."""
        unsent = self._plain.get_write_buffer_size() or _unacknowledged(self._plain.get_extra_info("socket"))
        self._end(self._ended_ours and not unsent)

    def lost(self, error: Exception | None) -> None:
        """The connection is over: reset, or ended by us because the service stops."""
        self._end(self._ended_ours and error is None)

    def _end(self, received: bool) -> None:
        if self._patience is not None:
            self._patience.cancel()
        if self._received is None:
            self._received = received
            if self._told is not None:
                self._told(received)

    def _end_ours(self) -> None:
        self._ended_ours = True
        self._plain.resume_reading()
        # Not connected any more: reset, of which `lost` hears next.
        with suppress(OSError):
            self._plain.write_eof()
        self._patience = self._loop.call_later(LINGER_SECONDS, self._give_up)

    def _give_up(self) -> None:
        self._end(received=False)
        self._plain.abort()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._plain.write(data)

    def is_closing(self) -> bool:
        return self._ended_ours or self._plain.is_closing()

    def close(self) -> None:
        if self._begun and not self.is_closing():
            self._end_ours()
        else:
            self._plain.close()


def last_reply(scope: Scope) -> LastReply | None:
    """The connection's, where the server has it."""
    found: LastReply | None = scope.get("extensions", {}).get(EXTENSION)
    return found


def _unacknowledged(connection: socket.socket) -> bool:
    """Whether the client's system lacks a part of what was sent; our end counts as one byte, and may be lacking."""
    if sys.platform != "linux":
        return False
    reply = ioctl(connection.fileno(), TIOCOUTQ, bytes(4))
    return int.from_bytes(reply, sys.byteorder) > 1
