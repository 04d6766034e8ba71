"""When Python looks for cyclic garbage: in quiet moments, not in the middle of a flood."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

LOOK_SECONDS = 1.0
# Connections end as cycles of a dozen kilobytes, so a service that is never idle may not put it off for ever.
MOST_ENDED = 65_536
# Young objects, of which there are few at a time, are looked at by themselves; old ones only when we say so.
THRESHOLDS = (20_000, 5, 1_000_000)


@dataclass
class Load:
    """Requests that wait, and those that ended since the last collection."""

    pending: int = 0
    ended: int = 0

    @property
    def is_due(self) -> bool:
        """Whether a collection costs nobody anything, or cannot be put off."""
        return self.ended >= MOST_ENDED or (self.ended > 0 and self.pending == 0)


@asynccontextmanager
async def collecting(load: Load) -> AsyncIterator[None]:
    """Take over from Python's own rule meanwhile.

    That rule looks at all objects each time they have grown by a quarter. With sixteen thousand requests pending one
    look takes seconds, during which no thread runs: neither requests nor probes are answered.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    task = asyncio.create_task(_collect_when_due(load))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        gc.set_threshold(*before)
        gc.unfreeze()


async def _collect_when_due(load: Load) -> None:
    while True:
        if load.is_due:
            load.ended = 0
            gc.collect()
        await asyncio.sleep(LOOK_SECONDS)
