"""The store made a change and its reply was lost: what the change said is done all the same, once."""

import asyncio
import io
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pytest

pytest.importorskip("fastapi", reason="needs restrain-openrlhf[serve]")

from restrain_openrlhf.reward.housekeeping import look_after
from restrain_openrlhf.reward.logs import Log
from restrain_openrlhf.reward.metrics import Metrics
from restrain_openrlhf.reward.rendezvous import Rendezvous
from restrain_openrlhf.reward.seating import Arrival, Rules
from restrain_openrlhf.reward.seats import Group, GroupResult, Moment, PromptState
from restrain_openrlhf.reward.store import Change, MemoryStore, StoreError

N = 3
RULES = Rules(n=N, deadline=800, retake=15, keep=900)


@dataclass
class LosesReplies(MemoryStore):
    """Makes every change; the replies whose numbers are in `lost` do not come."""

    lost: frozenset[int] = frozenset()
    changes: int = 0

    async def update(self, key: str, change: Change) -> PromptState:
        state = await super().update(key, change)
        self.changes += 1
        if self.changes - 1 in self.lost:
            raise StoreError("timed out")
        return state


@dataclass
class Scorer:
    """Gives every seat its index, and counts the groups."""

    scored: list[str] = field(default_factory=list)

    async def __call__(self, prompt: str, gold: str | None, group: Group) -> GroupResult:
        self.scored.append(group.name)
        values = tuple(float(index) for index in range(len(group.seats)))
        return GroupResult(positive=values, negative=values, rewards=values)


@pytest.mark.parametrize("lost", [(), (0,), (1,), (2,), (0, 1), (0, 1, 2), (1, 2, 3)])
def test_a_group_is_scored_once_and_answered_whichever_reply_is_lost(lost, monkeypatch):
    """Change 0 seats two rollouts, 1 the last one and claims the group, 2 writes the result."""
    monkeypatch.setattr("restrain_openrlhf.reward.rendezvous.STORE_RETRY_SECONDS", 0.01)
    scorer = Scorer()

    async def scenario() -> list[float]:
        log = Log("a", io.StringIO())
        store = LosesReplies(lost=frozenset(lost))
        rendezvous = Rendezvous(store, scorer, RULES, Metrics(), log, replica="a")
        places = [rendezvous.place("key", "prompt", None, arrival(str(index))) for index in range(N - 1)]
        await asyncio.sleep(0.05)
        places.append(rendezvous.place("key", "prompt", None, arrival(str(N - 1))))
        await asyncio.sleep(0.1)
        await look_after(rendezvous)
        shares = await asyncio.wait_for(asyncio.gather(*(place.outcome for place in places)), 5)
        return [share.positive for share in shares]

    assert asyncio.run(scenario()) == [0.0, 1.0, 2.0]
    assert len(scorer.scored) == 1


def arrival(name: str) -> Arrival:
    return Arrival(name=name, text=name, answer=name, truncated=False, replica="a")


@dataclass
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
        rendezvous = Rendezvous(ReadsSlowly(), Scorer(), RULES, metrics, Log("a", io.StringIO()), replica="a")
        rendezvous.place("key", "prompt", None, arrival("0"))
        await asyncio.sleep(0.01)
        look = asyncio.create_task(look_after(rendezvous))
        await asyncio.sleep(0.01)
        rendezvous.place("key", "prompt", None, arrival("1"))
        await look
        await asyncio.sleep(0.01)

    asyncio.run(scenario())
    counted = {
        line.split()[0]: float(line.split()[1]) for line in metrics.text().decode().splitlines() if line[0] != "#"
    }
    assert counted["restrain_rejoins_total"] == 0
    assert counted['restrain_seats_total{kind="first"}'] == 2
