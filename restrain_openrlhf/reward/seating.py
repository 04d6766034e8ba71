"""Who gets which seat: joining and leaving the groups of one prompt, as pure functions on its state."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from restrain_openrlhf.reward.seats import Group, Moment, PromptState, Seat

# A replica that was silent for this long counts as dead (it beats several times a second).
DEAD_AFTER = 3.0


@dataclass(frozen=True)
class Rules:
    """Group size n and times in seconds: how long a group may gather, a seat stay vacant, a result be kept."""

    n: int
    deadline: float
    retake: float
    keep: float


@dataclass(frozen=True)
class Arrival:
    """A request at the door. `seen` is the store's time when it first knocked, None before."""

    name: str
    text: str
    answer: str | None
    truncated: bool
    replica: str
    seen: float | None = None


@dataclass(frozen=True)
class Seated:
    """The arrival has a seat; `retaken`: one that its earlier try had."""

    retaken: bool = False
    late: bool = False


@dataclass(frozen=True)
class Unsure:
    """Another replica holds a seat with the same text, and has not shown since the arrival that it lives."""


def join(state: PromptState, arrival: Arrival, moment: Moment, rules: Rules) -> tuple[PromptState, Seated | Unsure]:
    """Seat an arrival.

    A retry carries the same text as its first try, and so may a second rollout. What tells them apart is the first
    one's connection: a client retries only after it closed it. So an arrival takes a vacant seat with its text if there
    is one, and else a seat of its own; while it cannot be known whether a seat is vacant, it has to wait (Unsure).
    """
    own = _find(state, arrival.name)
    if own is not None:
        back = {"holder": arrival.replica, "orphaned": False, "answered": False}
        return _with_seat(state, own.name, own.model_copy(update=back)), Seated()
    same = [seat for group in state.groups for seat in group.seats if seat.text == arrival.text and not seat.answered]
    vacant = [seat for seat in same if is_vacant(seat, moment)]
    if vacant:
        taken = vacant[0].model_copy(update={"name": arrival.name, "holder": arrival.replica, "orphaned": False})
        return _with_seat(state, vacant[0].name, taken), Seated(retaken=True)
    if any(not _surely_held(seat, arrival, moment) for seat in same):
        return state, Unsure()
    return _new_seat(state, arrival, moment, rules)


def _new_seat(state: PromptState, arrival: Arrival, moment: Moment, rules: Rules) -> tuple[PromptState, Seated]:
    seat = Seat(
        name=arrival.name,
        text=arrival.text,
        answer=arrival.answer,
        truncated=arrival.truncated,
        holder=arrival.replica,
    )
    for wanted in (_is_short, is_open):
        for index, group in enumerate(state.groups):
            if len(group.seats) < rules.n and wanted(group):
                seated = group.model_copy(update={"seats": (*group.seats, seat)})
                groups = (*state.groups[:index], seated, *state.groups[index + 1 :])
                return with_groups(state, groups), Seated(late=wanted is _is_short)
    # A request that lost its seat may open a second group; the first may still be there.
    opened = Group(name=f"{seat.name} {moment.now}", opened=moment.now, seats=(seat,))
    return with_groups(state, (*state.groups, opened)), Seated()


def _is_short(group: Group) -> bool:
    return group.partial and group.result is not None


def is_open(group: Group) -> bool:
    return not group.partial and group.result is None and group.scorer is None


def is_vacant(seat: Seat, moment: Moment) -> bool:
    return seat.holder is None or moment.now - moment.beats.get(seat.holder, 0.0) > DEAD_AFTER


def _surely_held(seat: Seat, arrival: Arrival, moment: Moment) -> bool:
    """A replica knows its own connections; another's word counts if given after the arrival's first knock."""
    if seat.holder == arrival.replica:
        return True
    return arrival.seen is not None and moment.beats.get(seat.holder or "", 0.0) > arrival.seen


def leave(state: PromptState, name: str, moment: Moment) -> PromptState:
    """The connection of this seat is gone, unanswered: a retry may take it."""
    seat = _find(state, name)
    if seat is None:
        return state
    gone = {"holder": None, "vacated": moment.now, "orphaned": False}
    return _with_seat(state, name, seat.model_copy(update=gone))


def mark_answered(state: PromptState, name: str) -> PromptState:
    """The reply of this seat was sent."""
    seat = _find(state, name)
    if seat is None:
        return state
    over = {"answered": True, "holder": None, "orphaned": False}
    return _with_seat(state, name, seat.model_copy(update=over))


def seat_results(state: PromptState, names: Collection[str]) -> dict[str, tuple[Group, int]]:
    """Of these seats the ones that exist: their group and their index in it."""
    return {
        seat.name: (group, index)
        for group in state.groups
        for index, seat in enumerate(group.seats)
        if seat.name in names
    }


def first_seen(arrival: Arrival, moment: Moment) -> Arrival:
    """The arrival, with the time of its first knock."""
    return arrival if arrival.seen is not None else replace(arrival, seen=moment.now)


def _find(state: PromptState, name: str) -> Seat | None:
    return next((seat for group in state.groups for seat in group.seats if seat.name == name), None)


def _with_seat(state: PromptState, name: str, changed: Seat) -> PromptState:
    return each_seat(state, lambda seat: changed if seat.name == name else seat)


def each_seat(state: PromptState, change: Callable[[Seat], Seat]) -> PromptState:
    groups = []
    for group in state.groups:
        seats = tuple(change(seat) for seat in group.seats)
        same = all(new is old for new, old in zip(seats, group.seats, strict=True))
        groups.append(group if same else group.model_copy(update={"seats": seats}))
    return with_groups(state, tuple(groups))


def with_groups(state: PromptState, groups: Iterable[Group]) -> PromptState:
    """The state with these groups."""
    return state.model_copy(update={"groups": tuple(groups)})
