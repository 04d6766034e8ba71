"""Brings the requests of one prompt together: each waits here until its group is scored, whichever replica does it."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace

from restrain_openrlhf.errors import RestrainError
from restrain_openrlhf.reward.desk import Desk, Place, Work
from restrain_openrlhf.reward.logs import Log
from restrain_openrlhf.reward.metrics import Metrics
from restrain_openrlhf.reward.seating import Arrival, Rules, Unsure, seat_results
from restrain_openrlhf.reward.seats import Group, GroupResult, PromptState, share
from restrain_openrlhf.reward.store import Store, StoreError

UNSURE_SECONDS = 0.1
STORE_RETRY_SECONDS = 0.5

ScoreGroup = Callable[[str, str | None, Group], Awaitable[GroupResult]]


class StoppingError(RestrainError):
    """The service stops before the group is complete."""


class UnscorableGroupError(RestrainError):
    """A group that cannot be scored, with the reason for the client."""


@dataclass
class Rendezvous:
    """One replica's waiting requests. `score` makes a group's result and raises nothing; `scoring` names those groups.

    A request joins (`place`), waits on its outcome, and then leaves: answered, or with its seat kept for a retry.
    """

    store: Store
    score: ScoreGroup
    rules: Rules
    metrics: Metrics
    log: Log
    stopping: bool = False
    replica: str = field(default_factory=lambda: secrets.token_hex(6))
    desks: dict[str, Desk] = field(default_factory=dict)
    scoring: set[str] = field(default_factory=set)
    _running: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    def place(self, key: str, prompt: str, gold: str | None, arrival: Arrival) -> Place:
        """A place for a new request; its outcome comes when the group is scored."""
        outcome = asyncio.get_running_loop().create_future()
        place = Place(key, prompt, gold, replace(arrival, replica=self.replica), outcome)
        if self.stopping:
            outcome.set_exception(StoppingError("stopping"))
        desk = self.desk(key)
        desk.places[place.name] = place
        desk.joining.append(place)
        self.work(desk)
        return place

    def stop(self) -> None:
        """Whoever waits, waits no longer; seats stay vacant in the store for another replica's or a later try."""
        self.stopping = True
        for desk in self.desks.values():
            for place in desk.places.values():
                if not place.outcome.done():
                    place.outcome.set_exception(StoppingError("stopping"))

    @property
    def waits(self) -> bool:
        """Whether a request has no outcome yet."""
        return any(not place.outcome.done() for desk in self.desks.values() for place in desk.places.values())

    async def settled(self, seconds: float) -> None:
        """Returns when the store knows of every request that is over, or after this time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.desks:
                    await asyncio.sleep(0.05)

    def leave(self, place: Place, answered: bool) -> None:
        """The request is over: its reply was sent, or its connection is gone and a retry may come."""
        desk = self.desk(place.key)
        desk.places.pop(place.name, None)
        if place in desk.joining:
            desk.joining.remove(place)
        (desk.answered if answered else desk.leaving).append(place.name)
        self.work(desk)

    def desk(self, key: str) -> Desk:
        """The prompt's desk here, made where there is none."""
        return self.desks.setdefault(key, Desk(key))

    def work(self, desk: Desk) -> None:
        """Have the desk's changes made; at once, or right after those that are being made."""
        if desk.key not in self._running:
            self._running[desk.key] = asyncio.create_task(self._transactions(desk))

    async def _transactions(self, desk: Desk) -> None:
        """One transaction after the other, each with everything that came up during the last."""
        try:
            # Requests that arrive together are seated together.
            await asyncio.sleep(0)
            # redis-py may make an error of its own of a cancellation, which would be tried again.
            while desk.has_work and not _is_cancelled():
                await self._transaction(desk, desk.take_work())
        finally:
            del self._running[desk.key]
            if desk.is_idle:
                self.desks.pop(desk.key, None)

    async def _transaction(self, desk: Desk, work: Work) -> None:
        try:
            state = await self.store.update(
                desk.key, lambda state, moment: work.apply(state, moment, self.rules, self.replica, self.scoring)
            )
        except StoreError as error:
            self.metrics.store_failed()
            self.log.warning("store_failed", problem=str(error))
            desk.put_back(work)
            await asyncio.sleep(STORE_RETRY_SECONDS)
            return
        for place in work.joining:
            self._after_joining(desk, place)
        self.scoring -= {group.name for group, _ in work.finished}
        for group in work.claimed:
            self.scoring.add(group.name)
            self._start(self._score(desk.key, state, group))
        self.settle(desk, state)
        if work.finished:
            await self._announce(desk.key)

    def _after_joining(self, desk: Desk, place: Place) -> None:
        if isinstance(place.seated, Unsure):
            if place.name in desk.places:
                asyncio.get_running_loop().call_later(UNSURE_SECONDS, self._knock_again, desk.key, place)
        elif place.seated is not None:
            self.metrics.seated(place.seated)

    def _knock_again(self, key: str, place: Place) -> None:
        desk = self.desks.get(key)
        if desk is not None and place.name in desk.places and place not in desk.joining:
            desk.joining.append(place)
            self.work(desk)

    def settle(self, desk: Desk, state: PromptState) -> None:
        """Give the waiting requests their shares; one whose seat is not in the state (lost, or taken) joins again."""
        for place, found in self._waiting(desk, state):
            if found is None:
                place.rejoins += 1
                self.metrics.rejoined()
                desk.joining.append(place)
                continue
            group, index = found
            if group.result is None:
                continue
            if group.result.problem is not None:
                place.outcome.set_exception(UnscorableGroupError(group.result.problem))
            else:
                place.outcome.set_result(share(group.result, index))
        if desk.has_work:
            self.work(desk)

    def is_behind(self, desk: Desk, state: PromptState) -> bool:
        """Whether a waiting request has its result in this state, or no seat (which may be younger than the state)."""
        return any(found is None or found[0].result is not None for _, found in self._waiting(desk, state))

    def _waiting(self, desk: Desk, state: PromptState) -> list[tuple[Place, tuple[Group, int] | None]]:
        """Requests that have had a seat and no outcome, each with its group and its index there if it still has it."""
        found = {name: seat for name, seat in seat_results(state, desk.places).items() if self._is_ours(*seat)}
        return [
            (place, found.get(place.name))
            for place in desk.places.values()
            if not (place.outcome.done() or place in desk.joining or isinstance(place.seated, Unsure))
        ]

    def _is_ours(self, group: Group, index: int) -> bool:
        return group.seats[index].holder == self.replica

    async def _score(self, key: str, state: PromptState, group: Group) -> None:
        result = await self.score(state.prompt, state.gold, group)
        desk = self.desk(key)
        desk.finished.append((group, result))
        self.work(desk)

    async def _announce(self, key: str) -> None:
        with suppress(StoreError):
            await self.store.announce(key)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
