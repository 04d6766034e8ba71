"""A replica's own tasks end when it ends, whatever redis-py makes of their cancellation."""

import asyncio
import io
import random

import pytest

pytest.importorskip("fastapi", reason="needs the web stack: pip install restrain-openrlhf[serve]")

from restrain_openrlhf.reward.housekeeping import end, keeping_house
from restrain_openrlhf.reward.logs import Log
from restrain_openrlhf.reward.metrics import Metrics
from restrain_openrlhf.reward.redis_store import RedisStore
from restrain_openrlhf.reward.rendezvous import Rendezvous
from restrain_openrlhf.reward.seating import Arrival, Rules
from restrain_openrlhf.reward.seats import Group, GroupResult

pytestmark = pytest.mark.timeout(120)

RULES = Rules(n=4, deadline=800, retake=15, keep=900)


def test_a_task_that_does_not_hear_at_first_is_told_again():
    async def deaf() -> None:
        for _ in range(3):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue

    async def scenario() -> None:
        task = asyncio.create_task(deaf())
        await asyncio.sleep(0)
        await asyncio.wait_for(end([task]), 30)
        assert task.done()

    asyncio.run(scenario())


def arrival(name: str) -> Arrival:
    return Arrival(name=name, text=name, answer=None, truncated=False, replica="a")


async def score(prompt: str, gold: str | None, group: Group) -> GroupResult:
    zeros = (0.0,) * len(group.seats)
    return GroupResult(positive=zeros, negative=zeros, rewards=zeros)


async def short_life(url: str, chance: random.Random) -> None:
    """A replica that begins, takes some rollouts and ends at any moment of its tasks' work."""
    rendezvous = Rendezvous(RedisStore.at(url, 1000), score, RULES, Metrics(), Log("a", io.StringIO()))
    async with keeping_house(rendezvous, lambda: None):
        for number in range(chance.randrange(12)):
            rendezvous.place(f"{chance.random()}", "p", None, arrival(str(number)))
        await asyncio.sleep(chance.random() * 0.7)
        rendezvous.stop()
        places = [place for desk in rendezvous.desks.values() for place in desk.places.values()]
        for place in places:
            place.outcome.exception()
            rendezvous.leave(place, answered=False)
        await rendezvous.settled(chance.choice((0.0, 5.0)))


@pytest.mark.long
def test_replicas_end_at_whatever_moment_they_are_told_to(redis):
    async def scenario() -> None:
        chance = random.Random(0)
        for _ in range(3):
            lives = [short_life(redis.url, chance) for _ in range(20)]
            await asyncio.wait_for(asyncio.gather(*lives), 30)

    asyncio.run(scenario())
