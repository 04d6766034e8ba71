"""Who gets which seat, and when a group closes: the rules of the rendezvous, without any network."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from restrain_openrlhf.reward.closing import claim, finish, sweep
from restrain_openrlhf.reward.seating import (
    Arrival,
    Rules,
    Seated,
    Unsure,
    first_seen,
    join,
    leave,
    mark_answered,
)
from restrain_openrlhf.reward.seats import GroupResult, Moment, PromptState

RULES = Rules(n=4, deadline=800, retake=15, keep=900)
ALIVE = {"a": 0.0, "b": 0.0}


def at(now: float, **beats: float) -> Moment:
    return Moment(now, {**dict.fromkeys(ALIVE, now), **beats})


def arrival(name: str, text: str, replica: str = "a") -> Arrival:
    return Arrival(name=name, text=text, answer=text, truncated=False, replica=replica)


def seat_all(state: PromptState, arrivals: list[Arrival], moment: Moment) -> PromptState:
    for one in arrivals:
        state, seated = join(state, one, moment, RULES)
        assert isinstance(seated, Seated)
    return state


def texts(state: PromptState) -> list[list[str]]:
    return [[seat.text for seat in group.seats] for group in state.groups]


def test_a_duplicate_of_another_replicas_rollout_waits_until_that_replica_shows_that_it_lives():
    state = seat_all(PromptState(), [arrival("1", "x", "a")], at(10))
    knocking = first_seen(arrival("2", "x", "b"), at(10.2, a=10.1))
    _, seated = join(state, knocking, at(10.2, a=10.1), RULES)
    assert isinstance(seated, Unsure)
    later, seated = join(state, knocking, at(10.5, a=10.4), RULES)
    assert seated == Seated()
    assert texts(later) == [["x", "x"]]


def test_the_results_of_a_replica_that_never_comes_back_are_kept_for_a_while():
    state, (group,) = claim(seat_all(PromptState(), [arrival(c, c) for c in "wxyz"], at(10)), "b", RULES, ())
    state = finish(state, group, GroupResult(positive=(0,) * 4, negative=(0,) * 4, rewards=(0,) * 4), at(11))
    state = sweep(state, at(20, a=10), RULES)
    assert len(sweep(state, at(11 + RULES.keep, a=10), RULES).groups) == 1
    assert len(sweep(state, at(12 + RULES.keep, a=10), RULES).groups) == 0


def test_a_dead_scorers_group_is_claimed_by_another_and_scored_once():
    state = seat_all(PromptState(), [arrival(str(i), "x") for i in range(4)], at(1))
    state, (first,) = claim(state, "a", RULES, ())
    assert claim(sweep(state, at(2), RULES), "b", RULES, ())[1] == ()
    state, (second,) = claim(sweep(state, at(5, a=1.0), RULES), "b", RULES, ())
    state = finish(state, second, GroupResult(kl_weight=2), at(6))
    assert finish(state, first, GroupResult(kl_weight=3), at(7)).groups[0].result == GroupResult(kl_weight=2)


def test_a_result_for_other_seats_is_refused():
    state = seat_all(PromptState(), [arrival(str(i), "x") for i in range(4)], at(1))
    state, (group,) = claim(state, "a", RULES, ())
    other = group.model_copy(update={"seats": group.seats[:3]})
    assert finish(state, other, GroupResult(), at(2)).groups[0].result is None


@settings(max_examples=150, deadline=None)
@given(
    rollouts=st.lists(st.sampled_from("wxyz"), min_size=1, max_size=6).map(lambda some: some * RULES.n),
    events=st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["drop", "retry", "arrive", "score"])), max_size=80),
    replicas=st.lists(st.sampled_from("ab"), min_size=1, max_size=24),
)
def test_whatever_the_order_of_arrivals_drops_and_retries_every_rollout_has_one_seat(rollouts, events, replicas):
    """n·k rollouts, few different texts, two replicas, connections lost at any time: k whole groups, all answered."""
    state, now, names = PromptState(), 1.0, iter(range(10_000))
    outside, connected, dropped = list(rollouts), {}, []

    def knock(text: str) -> None:
        nonlocal state, now
        name = str(next(names))
        one = first_seen(arrival(name, text, replicas[int(name) % len(replicas)]), at(now))
        now += 0.01
        state, seated = join(state, one, at(now), RULES)
        assert isinstance(seated, Seated)
        connected[name] = text

    def score() -> None:
        nonlocal state
        state, groups = claim(sweep(state, at(now), RULES), "a", RULES, ())
        for group in groups:
            zeros = (0.0,) * len(group.seats)
            state = finish(state, group, GroupResult(positive=zeros, negative=zeros, rewards=zeros), at(now))

    for number, event in events:
        now += 0.01
        if event == "arrive" and outside:
            knock(outside.pop())
        elif event == "drop" and connected:
            name = sorted(connected)[number % len(connected)]
            dropped.append(connected.pop(name))
            state = leave(state, name, at(now))
        elif event == "retry" and dropped:
            knock(dropped.pop(number % len(dropped)))
        elif event == "score":
            score()
    while outside or dropped:
        knock((dropped or outside).pop())
    score()
    assert all(len(group.seats) == RULES.n and group.result for group in state.groups)
    assert Counter(seat.text for group in state.groups for seat in group.seats) == Counter(rollouts)
    assert {seat.name for group in state.groups for seat in group.seats} == set(connected)


class World:
    """Two replicas and their waiting requests, of which one replica may be silent while the other goes on."""

    def __init__(self) -> None:
        self.state, self.now, self.silent_since = PromptState(), 1.0, {}
        self.waiting: dict[str, list[Arrival]] = {"a": [], "b": []}
        self.answered: list[str] = []
        self.scored = 0

    @property
    def awake(self) -> list[str]:
        return [replica for replica in "ab" if replica not in self.silent_since]

    def moment(self) -> Moment:
        return at(self.now, **self.silent_since)

    def arrive(self, name: str, text: str, replica: str) -> None:
        self.waiting[replica].append(first_seen(arrival(name, text, replica), self.moment()))

    def turn(self, replica: str) -> None:
        """What a replica does: seat who has none, claim, score, answer."""
        moment = self.moment().seen_by(replica)
        self.state = sweep(self.state, moment, RULES)
        for one in self.waiting[replica]:
            seat = self.seat_of(one.name)
            if seat is None or seat[1].holder != replica:
                self.state, _ = join(self.state, one, moment, RULES)
        self.state, groups = claim(self.state, replica, RULES, ())
        for group in groups:
            zeros = (0.0,) * RULES.n
            assert len(group.seats) == RULES.n
            self.state = finish(self.state, group, GroupResult(positive=zeros, negative=zeros, rewards=zeros), moment)
            self.scored += 1
        for one in list(self.waiting[replica]):
            group, _ = self.seat_of(one.name) or (None, None)
            if group is not None and group.result is not None:
                self.state = mark_answered(self.state, one.name)
                self.waiting[replica].remove(one)
                self.answered.append(one.text)

    def seat_of(self, name: str):
        found = [(group, seat) for group in self.state.groups for seat in group.seats if seat.name == name]
        return found[0] if found else None


@settings(max_examples=200, deadline=None)
@given(
    rollouts=st.lists(st.sampled_from("wxyz"), min_size=1, max_size=4).map(lambda some: some * RULES.n),
    events=st.lists(
        st.tuples(
            st.sampled_from(["arrive", "arrive", "arrive", "silent", "wait", "wait", "awake"]), st.sampled_from("ab")
        ),
        min_size=20,
        max_size=80,
    ),
)
def test_however_long_replicas_are_silent_every_request_is_answered_once(rollouts, events):
    """No requests are lost and none seated twice: as many groups as rollouts make, and nobody left over."""
    world, outside = World(), list(enumerate(rollouts))
    for event, replica in events:
        world.now += 20.0 if event == "wait" else 0.5
        if event == "silent" and len(world.awake) == 2:
            world.silent_since[replica] = world.now
        elif event == "awake":
            world.silent_since.pop(replica, None)
        elif event == "arrive" and outside:
            name, text = outside.pop()
            world.arrive(str(name), text, replica)
        for each in world.awake:
            world.turn(each)
    world.silent_since.clear()
    for name, text in outside:
        world.arrive(str(name), text, "a")
    for _ in range(8):
        world.now += 2.0
        world.turn("a")
        world.turn("b")
    assert Counter(world.answered) == Counter(rollouts)
    assert world.waiting == {"a": [], "b": []}
    assert world.scored == len(rollouts) // RULES.n
    assert sweep(world.state, world.moment(), RULES).groups == ()
