"""Cyclic garbage is collected when nobody waits, or when there is much of it; Python's own rule is put off."""

import asyncio
import gc
import weakref

from restrain_openrlhf.reward import garbage
from restrain_openrlhf.reward.garbage import MOST_ENDED, Load, collecting


class Cycle:
    def __init__(self) -> None:
        self.own = self


def test_a_cycle_goes_when_nobody_waits_or_many_have_ended_and_afterwards_all_is_as_before(monkeypatch):
    monkeypatch.setattr(garbage, "LOOK_SECONDS", 0.02)
    before = gc.get_threshold()

    async def scenario() -> list[bool]:
        watched, gone = Load(), []
        async with collecting(watched):
            assert gc.get_threshold() != before
            for load in (Load(pending=5, ended=9), Load(pending=0, ended=1), Load(pending=5, ended=MOST_ENDED)):
                lost = weakref.ref(Cycle())
                watched.pending, watched.ended = load.pending, load.ended
                await asyncio.sleep(0.2)
                gone.append(lost() is None)
        return gone

    assert asyncio.run(scenario()) == [False, True, True]
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
