"""The rules of the group collector, without any network: who gets which slot, and when a group ends."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from restrain_openrlhf.scoring.service.get_reward import Group, GroupCollector, Reply, Slot
from restrain_openrlhf.scoring.service.service_config import Timing
from restrain_openrlhf.scoring.wire import GroupResponse, RewardReply

N = 4
TIMING = Timing(deadline=100.0, retake=15.0, keep=200.0)
LATE = RewardReply(rewards=-1, scores=-1)


class World:
    """A collector, a clock, and the clients of one prompt or several; scoring takes until `finish_scoring`."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.now, self.to_score = 1.0, list[Group]()
        self.collector = GroupCollector(N, TIMING, self.to_score.append)

    def arrive(self, text: str, key: str = "p") -> Slot:
        return self.collector.arrive(key, text, GroupResponse(text=text, finished=True), self.now)

    def leave(self, slot: Slot) -> None:
        self.collector.leave(slot, self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for key in tuple(self.collector.groups):
            self.collector.sweep(key, self.now)

    def finish_scoring(self) -> list[str]:
        """Every group that is to be scored gets its replies; returns their texts, joined."""
        texts = ["".join(slot.response.text for slot in group.slots[: group.size]) for group in self.to_score]
        while self.to_score:
            group = self.to_score.pop()
            replies: list[Reply] = [RewardReply(rewards=index, scores=0) for index in range(group.size)]
            self.collector.finish(group, replies, LATE, self.now)
        return texts

    def read(self, slot: Slot) -> RewardReply | None:
        """The reply, taken by its client; None while there is none."""
        if not slot.reply.done():
            return None
        slot.group.slots.remove(slot)
        return slot.reply.result()

    def close(self) -> None:
        asyncio.set_event_loop(None)
        self.loop.close()


@pytest.fixture
def world():
    made = World()
    yield made
    made.close()


def test_twins_are_two_rollouts_and_a_vacant_slot_is_its_own_texts(world):
    one, _ = world.arrive("x"), world.arrive("x")
    world.leave(one)
    world.wait(TIMING.retake)
    assert world.arrive("y").kind == "first"
    again = world.arrive("x")
    assert (again is one, again.kind) == (True, "retry")
    assert world.arrive("x").kind == "first"
    assert world.finish_scoring() == ["xxxy"]


def test_a_slot_nobody_comes_back_to_is_given_up_so_that_steps_do_not_mix(world):
    left = [world.arrive(text) for text in "ab"]
    for slot in left:
        world.leave(slot)
    world.wait(TIMING.retake + 1)
    assert world.collector.groups == {}
    for text in "wxyz":
        world.arrive(text)
    assert world.finish_scoring() == ["wxyz"]


def test_the_result_of_a_client_that_is_away_waits_for_its_retry(world):
    slots = [world.arrive(text) for text in "abcd"]
    world.leave(slots[2])
    # Scoring may take longer than a vacant slot is kept.
    world.wait(TIMING.retake + 1)
    world.finish_scoring()
    world.wait(TIMING.retake - 1)
    again = world.arrive("c")
    assert (again.kind, world.read(again).rewards) == ("retry", 2)
    world.leave(slots[0])
    world.wait(TIMING.retake + 1)
    assert world.arrive("a").kind == "first"


def test_the_deadline_scores_who_is_there_and_later_ones_are_late_for_a_while(world):
    slots = [world.arrive(text) for text in "ab"]
    world.wait(TIMING.deadline)
    during = world.arrive("c")
    assert world.finish_scoring() == ["ab"]
    assert [world.read(slot).rewards for slot in (*slots, during)] == [0, 1, -1]
    assert during.kind == "late"
    world.wait(TIMING.keep - 1)
    after = world.arrive("d")
    assert (after.kind, world.read(after)) == ("late", LATE)
    assert world.arrive("e").kind == "first"


EVENTS = st.sampled_from(["arrive", "arrive", "arrive", "drop", "retry", "score", "read", "wait", "deadline"])


@settings(max_examples=300)
@given(
    rollouts=st.lists(st.tuples(st.sampled_from("pq"), st.sampled_from("wxyz")), min_size=1, max_size=24),
    events=st.lists(st.tuples(EVENTS, st.integers(0, 40)), max_size=120),
)
def test_whatever_happens_every_rollout_is_answered_once_in_a_group_of_its_prompt(rollouts, events):
    """Arrivals, drops, retries, scoring and deadlines in any order; clients that are away come back in time."""
    world, outside, away, waiting = World(), list(rollouts), [], []
    answered = Counter()
    scored = []

    def arrive(key: str, text: str) -> None:
        slot = world.arrive(text, key)
        assert slot.group.prompt == key
        waiting.append((slot, key, text))

    def read_all() -> None:
        for one in list(waiting):
            if world.read(one[0]) is not None:
                waiting.remove(one)
                answered[one[1:]] += 1

    def come_back() -> None:
        while away:
            arrive(*away.pop())

    def wait(seconds: float) -> None:
        for _ in range(int(seconds / 10) + 1):
            come_back()
            world.wait(min(seconds, 10))

    for event, number in events:
        world.now += 0.01
        if event == "arrive" and outside:
            arrive(*outside.pop())
        elif event == "drop" and waiting:
            slot, *rollout = waiting.pop(number % len(waiting))
            world.leave(slot)
            away.append(rollout)
        elif event == "retry" and away:
            arrive(*away.pop(number % len(away)))
        elif event == "score":
            scored += world.finish_scoring()
        elif event == "read":
            read_all()
        elif event in ("wait", "deadline"):
            wait(number if event == "wait" else TIMING.deadline)
    while outside:
        arrive(*outside.pop())
    for _ in range(3):
        wait(TIMING.deadline)
        scored += world.finish_scoring()
        read_all()
    assert answered == Counter(rollouts)
    assert (waiting, away) == ([], [])
    assert sum(map(len, scored)) <= len(rollouts)
    assert all(1 <= len(group) <= N for group in scored)
    if (
        not any(event == "deadline" for event, _ in events)
        and sum(number for event, number in events if event == "wait") < 90
    ):
        whole = sum(count // N for count in Counter(key for key, _ in rollouts).values())
        assert sum(len(group) == N for group in scored) == whole
    world.wait(TIMING.keep + TIMING.retake + 1)
    assert world.collector.groups == {}
    world.close()
