"""What a replica does without being asked: show that it lives, look after waiting groups, hear of others' results."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from restrain_openrlhf.reward.closing import claim, sweep
from restrain_openrlhf.reward.rendezvous import Rendezvous
from restrain_openrlhf.reward.store import StoreError

BEAT_SECONDS = 0.3
LOOK_SECONDS = 1.0
LOOK_AT_ONCE = 64
CANCEL_SECONDS = 0.2


@asynccontextmanager
async def keeping_house(rendezvous: Rendezvous, store_answered: Callable[[], None]) -> AsyncIterator[None]:
    """Run the three loops meanwhile, and take the replica out of the store's list at the end.

    `store_answered` is called whenever the store did.
    """

    async def beat() -> None:
        await rendezvous.store.beat(rendezvous.replica)
        store_answered()

    tasks = [
        asyncio.create_task(_forever(rendezvous, BEAT_SECONDS, beat)),
        asyncio.create_task(_forever(rendezvous, LOOK_SECONDS, lambda: look_after(rendezvous))),
        asyncio.create_task(_forever(rendezvous, BEAT_SECONDS, lambda: hear(rendezvous))),
    ]
    try:
        yield
    finally:
        await end(tasks)
        with suppress(StoreError):
            await rendezvous.store.farewell(rendezvous.replica)
        await rendezvous.store.close()


async def end(tasks: Sequence["asyncio.Task[None]"]) -> None:
    """Cancel them until they are over: redis-py may make an error of its own of a cancellation, and they go on."""
    while waiting := [task for task in tasks if not task.done()]:
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting, timeout=CANCEL_SECONDS)


async def _forever(rendezvous: Rendezvous, seconds: float, step: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await step()
        except StoreError as error:
            rendezvous.metrics.store_failed()
            rendezvous.log.warning("store_failed", problem=str(error))
        await asyncio.sleep(seconds)


async def look_after(rendezvous: Rendezvous) -> None:
    """Deadlines, dead replicas' scoring and lost seats of every prompt that has requests here."""
    waiting = {key for key, desk in rendezvous.desks.items() if desk.places}
    keys = [*(waiting | set(await rendezvous.store.kept()))]
    for start in range(0, len(keys), LOOK_AT_ONCE):
        await _look_at(rendezvous, keys[start : start + LOOK_AT_ONCE])
        # Requests get their turn: a thousand prompts in one go take long enough to be felt by each of them.
        await asyncio.sleep(0)


async def _look_at(rendezvous: Rendezvous, keys: Sequence[str]) -> None:
    states, moment = await rendezvous.store.look(keys)
    moment = moment.seen_by(rendezvous.replica)
    for key, state in states.items():
        swept, _ = claim(
            sweep(state, moment, rendezvous.rules), rendezvous.replica, rendezvous.rules, rendezvous.scoring
        )
        desk = rendezvous.desks.get(key)
        # What was read may be older than the newest requests' seats: only a transaction settles.
        if swept is not state or (desk is not None and rendezvous.is_behind(desk, state)):
            desk = rendezvous.desk(key)
            desk.look = True
            rendezvous.work(desk)


async def hear(rendezvous: Rendezvous) -> None:
    """Give out the results that other replicas announce."""
    async for key in rendezvous.store.announcements():
        desk = rendezvous.desks.get(key)
        if desk is not None and desk.places:
            desk.look = True
            rendezvous.work(desk)
