"""What a replica does without being asked: it looks after waiting requests, and its tasks end when it ends."""

import asyncio
import io
import random
from collections.abc import Collection, Mapping

import pytest

pytest.importorskip("fastapi", reason="needs the web stack: pip install restrain-openrlhf[serve]")

from restrain_openrlhf.reward.housekeeping import end, keeping_house, look_after
from restrain_openrlhf.reward.logs import Log
from restrain_openrlhf.reward.metrics import Metrics
from restrain_openrlhf.reward.redis_store import RedisStore
from restrain_openrlhf.reward.rendezvous import Rendezvous
from restrain_openrlhf.reward.seating import Arrival, Rules
from restrain_openrlhf.reward.seats import Group, GroupResult, Moment, PromptState
from restrain_openrlhf.reward.store import MemoryStore

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


class ReadsSlowly(MemoryStore):
    """What is looked at arrives some time after it was read."""

    async def look(self, keys: Collection[str]) -> tuple[Mapping[str, PromptState], Moment]:
        states = await super().look(keys)
        await asyncio.sleep(0.05)
        return states


def test_a_request_seated_while_its_prompt_was_looked_at_keeps_its_seat():
    """What was read does not have it yet; that is no lost seat."""
    metrics = Metrics()

    async def scenario() -> None:
        rendezvous = Rendezvous(ReadsSlowly(), score, RULES, metrics, Log("a", io.StringIO()), replica="a")
        rendezvous.place("key", "prompt", None, arrival("0"))
        await asyncio.sleep(0.01)
        look = asyncio.create_task(look_after(rendezvous))
        await asyncio.sleep(0.01)
        rendezvous.place("key", "prompt", None, arrival("1"))
        await look
        await asyncio.sleep(0.01)

    asyncio.run(scenario())
    told = metrics.text().decode().splitlines()
    assert "restrain_rejoins_total 0.0" in told
    assert 'restrain_seats_total{kind="first"} 2.0' in told
