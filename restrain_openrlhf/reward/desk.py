"""One prompt's desk in one replica: who waits here, and what is to be done to the shared state next."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field

from restrain_openrlhf.reward import closing, seating
from restrain_openrlhf.reward.seating import Arrival, Rules, Seated, Unsure
from restrain_openrlhf.reward.seats import Group, GroupResult, Moment, PromptState, Share


@dataclass(eq=False)
class Place:
    """One waiting request. `outcome` resolves to its share, or to a GroupProblem."""

    key: str
    prompt: str
    gold: str | None
    arrival: Arrival
    outcome: "asyncio.Future[Share]"
    seated: Seated | Unsure | None = None
    rejoins: int = 0

    @property
    def name(self) -> str:
        """The name of its seat."""
        return self.arrival.name


@dataclass
class Desk:
    """Requests of one prompt, and the changes that the next transaction makes together."""

    key: str
    places: dict[str, Place] = field(default_factory=dict)
    joining: list[Place] = field(default_factory=list)
    leaving: list[str] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    finished: list[tuple[Group, GroupResult]] = field(default_factory=list)
    look: bool = False

    @property
    def is_idle(self) -> bool:
        """Nobody waits, and nothing is to be done."""
        return not self.places and not self.has_work

    @property
    def has_work(self) -> bool:
        """Whether a transaction is due."""
        return bool(self.joining or self.leaving or self.answered or self.finished or self.look)

    def take_work(self) -> "Work":
        """What is to be done now; the desk's lists are empty after it."""
        work = Work(self.joining, self.leaving, self.answered, self.finished)
        self.joining, self.leaving, self.answered, self.finished, self.look = [], [], [], [], False
        return work

    def put_back(self, work: "Work") -> None:
        """The transaction failed: its work is still to be done. A place that has left meanwhile joins no more."""
        self.joining = [place for place in work.joining if place.name in self.places] + self.joining
        self.leaving = work.leaving + self.leaving
        self.answered = work.answered + self.answered
        self.finished = work.finished + self.finished


@dataclass
class Work:
    """One transaction's changes, applied in this order: results, answered, left, joined, claimed."""

    joining: list[Place]
    leaving: list[str]
    answered: list[str]
    finished: list[tuple[Group, GroupResult]]
    claimed: tuple[Group, ...] = ()

    def apply(
        self, state: PromptState, moment: Moment, rules: Rules, replica: str, scoring: Collection[str]
    ) -> PromptState:
        """The state after it; `scoring` names the groups that this replica is scoring.

        May be called again with a newer state; then its earlier outcome does not count.
        """
        moment = moment.seen_by(replica)
        for group, result in self.finished:
            state = closing.finish(state, group, result, moment)
        for name in self.answered:
            state = seating.mark_answered(state, name)
        for name in self.leaving:
            state = seating.leave(state, name, moment)
        state = closing.sweep(state, moment, rules)
        for place in self.joining:
            state = state.model_copy(update={"prompt": place.prompt, "gold": place.gold})
            place.arrival = seating.first_seen(place.arrival, moment)
            state, place.seated = seating.join(state, place.arrival, moment, rules)
        ended = {group.name for group, _ in self.finished}
        state, self.claimed = closing.claim(state, replica, rules, {*scoring} - ended)
        return state
