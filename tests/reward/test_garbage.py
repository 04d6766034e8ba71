"""Cyclic garbage is collected when nobody waits, or when there is much of it; Python's own rule is put off."""

import asyncio
import gc
import weakref

import pytest

from restrain_openrlhf.reward.garbage import MOST_ENDED, Load, collecting


class Cycle:
    def __init__(self) -> None:
        self.own = self


@pytest.mark.parametrize(("load", "goes"), [(Load(0, 1), True), (Load(5, MOST_ENDED), True), (Load(5, 9), False)])
def test_a_cycle_goes_when_it_is_due(load, goes):
    async def scenario() -> bool:
        watched = Load()
        async with collecting(watched):
            # The first look comes before the cycle is there.
            await asyncio.sleep(0)
            lost = weakref.ref(Cycle())
            watched.pending, watched.ended = load.pending, load.ended
            await asyncio.sleep(1.5)
            return lost() is None

    assert asyncio.run(scenario()) is goes


def test_afterwards_all_is_as_before():
    async def scenario() -> tuple[int, int, int]:
        async with collecting(Load()):
            return gc.get_threshold()

    before = gc.get_threshold()
    assert asyncio.run(scenario()) != before
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
