"""The plainest balancer there is: each TCP connection goes to the next server, past those that refuse it."""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Sequence
from typing import Self


class RoundRobin:
    """Listens on a port of its own, in a thread of its own, in front of these ports of this machine."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        self._turn = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=4096)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _end(self) -> None:
        self._server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back_reader, back_writer = await self._connect()
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, back_writer), _copy(back_reader, writer))

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        for _ in self._ports:
            with contextlib.suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", self._ports[next(self._turn) % len(self._ports)])
        raise OSError("no server answers")


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
