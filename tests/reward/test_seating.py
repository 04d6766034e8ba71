"""Who gets which seat, and when a group closes: the rules of the rendezvous, without any network."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pydantic")

from restrain_openrlhf.reward.closing import claim, finish, sweep
from restrain_openrlhf.reward.seating import (
    DEAD_AFTER,
    Arrival,
    Rules,
    Seated,
    Unsure,
    first_seen,
    join,
    leave,
    mark_answered,
)
from restrain_openrlhf.reward.seats import GroupResult, Moment, PromptState, share

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


def test_groups_fill_in_order_and_duplicates_have_seats_of_their_own():
    state = seat_all(PromptState(), [arrival(str(i), text) for i, text in enumerate("xxyxzx")], at(1))
    assert texts(state) == [["x", "x", "y", "x"], ["z", "x"]]


def test_a_retry_takes_the_seat_that_its_first_try_left():
    state = seat_all(PromptState(), [arrival("1", "x"), arrival("2", "x"), arrival("3", "y")], at(1))
    state, seated = join(leave(state, "1", at(180)), arrival("4", "x"), at(181), RULES)
    assert seated == Seated(retaken=True)
    assert [(seat.name, seat.text) for seat in state.groups[0].seats] == [("4", "x"), ("2", "x"), ("3", "y")]


def test_a_retry_after_the_scoring_gets_the_result_of_its_seat():
    state = seat_all(PromptState(), [arrival(str(i), text) for i, text in enumerate("wxyz")], at(1))
    state, (group,) = claim(state, "a", RULES, ())
    state = finish(state, group, GroupResult(positive=(1, 2, 3, 4), negative=(0,) * 4, rewards=(0,) * 4), at(2))
    state, seated = join(leave(state, "2", at(2)), arrival("5", "y"), at(3), RULES)
    assert seated == Seated(retaken=True)
    assert [seat.name for seat in state.groups[0].seats] == ["0", "1", "5", "3"]
    assert share(state.groups[0].result, 2).positive == 3


def test_an_answered_seat_is_taken_by_nobody_and_an_answered_group_is_forgotten():
    state = seat_all(PromptState(), [arrival(str(i), "x") for i in range(4)], at(1))
    state, (group,) = claim(state, "a", RULES, ())
    state = finish(state, group, GroupResult(positive=(0,) * 4, negative=(0,) * 4, rewards=(0,) * 4), at(2))
    for name in "0123":
        state = mark_answered(state, name)
    state, _ = join(state, arrival("5", "x"), at(3), RULES)
    assert [len(group.seats) for group in state.groups] == [4, 1]
    assert texts(sweep(state, at(3), RULES)) == [["x"]]


def test_a_duplicate_of_another_replicas_rollout_waits_until_that_replica_shows_that_it_lives():
    state = seat_all(PromptState(), [arrival("1", "x", "a")], at(10))
    knocking = first_seen(arrival("2", "x", "b"), at(10.2, a=10.1))
    _, seated = join(state, knocking, at(10.2, a=10.1), RULES)
    assert isinstance(seated, Unsure)
    later, seated = join(state, knocking, at(10.5, a=10.4), RULES)
    assert seated == Seated()
    assert texts(later) == [["x", "x"]]


def test_the_seat_of_a_dead_replica_goes_to_the_retry():
    state = seat_all(PromptState(), [arrival("1", "x", "a")], at(10))
    knocking = first_seen(arrival("2", "x", "b"), at(11, a=10))
    assert isinstance(join(state, knocking, at(11, a=10), RULES)[1], Unsure)
    dead = at(10.1 + DEAD_AFTER, a=10)
    later, seated = join(sweep(state, dead, RULES), knocking, dead, RULES)
    assert seated == Seated(retaken=True)
    assert texts(later) == [["x"]]


def test_a_replica_that_was_only_slow_finds_its_requests_results():
    """It was silent for longer than a seat stays vacant; meanwhile all others were answered."""
    here, there = [arrival("1", "x", "a"), arrival("2", "y", "a")], [arrival("3", "w", "b"), arrival("4", "z", "b")]
    state, (group,) = claim(seat_all(PromptState(), [*here, *there], at(10)), "b", RULES, ())
    state = finish(state, group, GroupResult(positive=(1, 2, 3, 4), negative=(0,) * 4, rewards=(0,) * 4), at(11))
    state = mark_answered(mark_answered(state, "3"), "4")
    state = sweep(state, at(20, a=10), RULES)
    late = at(21 + RULES.retake, a=10)
    state = sweep(state, late, RULES)
    other, _ = join(state, arrival("5", "y", "b"), late, RULES)
    assert [len(group.seats) for group in other.groups] == [4, 1], "given up: another rollout with the text is new"
    state = seat_all(other, here, at(late.now + 1))
    assert [(seat.name, seat.holder) for seat in state.groups[0].seats[:2]] == [("1", "a"), ("2", "a")]
    state, seated = join(leave(state, "1", at(late.now + 1)), arrival("6", "x", "b"), at(late.now + 2), RULES)
    assert seated == Seated(retaken=True), "and if their replies are lost, so do their retries"
    for name in "62":
        state = mark_answered(state, name)
    assert texts(sweep(state, at(late.now + 2), RULES)) == [["y"]]


def test_the_results_of_a_replica_that_never_comes_back_are_kept_for_a_while():
    state, (group,) = claim(seat_all(PromptState(), [arrival(c, c) for c in "wxyz"], at(10)), "b", RULES, ())
    state = finish(state, group, GroupResult(positive=(0,) * 4, negative=(0,) * 4, rewards=(0,) * 4), at(11))
    state = sweep(state, at(20, a=10), RULES)
    assert len(sweep(state, at(11 + RULES.keep, a=10), RULES).groups) == 1
    assert len(sweep(state, at(12 + RULES.keep, a=10), RULES).groups) == 0


def test_a_seat_nobody_came_back_for_is_given_up():
    state = seat_all(PromptState(), [arrival("1", "x"), arrival("2", "y")], at(1))
    state = leave(state, "1", at(2))
    assert texts(sweep(state, at(2 + RULES.retake), RULES)) == [["x", "y"]]
    assert texts(sweep(state, at(2.1 + RULES.retake), RULES)) == [["y"]]


def test_the_deadline_closes_a_group_and_late_rollouts_are_neutral():
    state = seat_all(PromptState(), [arrival(str(i), text) for i, text in enumerate("xxy")], at(1))
    assert claim(sweep(state, at(RULES.deadline), RULES), "a", RULES, ())[1] == ()
    state, (group,) = claim(sweep(state, at(1 + RULES.deadline), RULES), "a", RULES, ())
    assert group.partial
    state = finish(state, group, GroupResult(positive=(1,) * 3, negative=(0,) * 3, rewards=(0,) * 3), at(802))
    state, seated = join(state, arrival("late", "z"), at(803), RULES)
    assert seated == Seated(late=True)
    assert share(state.groups[0].result, 3).neutral
    state, seated = join(state, arrival("next", "z"), at(804), RULES)
    assert seated == Seated()
    assert [len(group.seats) for group in state.groups] == [4, 1]


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


@settings(max_examples=300, deadline=None)
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


@settings(max_examples=500, deadline=None)
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
