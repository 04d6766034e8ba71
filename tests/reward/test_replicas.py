"""Replicas that share a Redis, under OpenRLHF's own client: groups split over them, and each of them killed or stopped.

Every request must get the right answer, and none may wait for ever.
"""

import asyncio
import os
import random
import signal

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack (make install)")

from restrain_openrlhf.reward.seating import DEAD_AFTER
from tests.reward.clients import (
    GROUP,
    RESTRAIN,
    Since,
    ask,
    expected,
    openrlhf_client,
    pairs,
    rollout,
    rollouts,
    round_robin,
    send,
)

pytestmark = [pytest.mark.host, pytest.mark.timeout(120)]

FIRST = len(GROUP) - 1


@pytest.fixture
def names(prompt) -> list[str]:
    return [f"{prompt}{number} " for number in range(10)]


async def all_but_last(ask_one, names):
    """Three of four rollouts of each prompt are on their way."""
    return [[asyncio.create_task(ask_one(body)) for body in rollouts(name)[:FIRST]] for name in names]


async def last(ask_one, names, tasks):
    """The fourth of each, and all replies."""
    for name, group in zip(names, tasks, strict=True):
        group.append(asyncio.create_task(ask_one(rollouts(name)[FIRST])))
    return [await asyncio.gather(*group) for group in tasks]


def test_groups_split_over_two_replicas_are_scored_once_and_a_killed_ones_clients_come_back(services, redis, names):
    """Groups of ten prompts are whole before one replica is killed; those of ten others wait for their last rollout."""
    one, two = services.start_two(store=redis.url, method=RESTRAIN)
    whole = [f"{name}whole " for name in names]
    bodies = [(name, index) for name in whole for index in range(len(GROUP))]
    random.Random(0).shuffle(bodies)

    async def scenario():
        async with round_robin([one, two]) as url:
            ask_one = openrlhf_client(url)
            counted = Since(one, two)
            early = await asyncio.gather(*(ask_one(rollout(name, GROUP[index])) for name, index in bodies))
            assert counted("restrain_groups_total") == len(whole)
            assert counted('restrain_seats_total{kind="first"}') == counted("restrain_seats_total") == len(bodies)
            assert min(replica.metric("restrain_seats_total") for replica in (one, two)) > 0
            waiting, survivor = await all_but_last(ask_one, names), Since(two)
            await counted.reaches("restrain_seats_total", len(bodies) + len(names) * FIRST)
            one.kill()
            return early, await last(ask_one, names, waiting), survivor

    early, late, survivor = asyncio.run(scenario())
    assert early == [expected()[index] for _, index in bodies]
    assert late == [expected()] * len(names)
    assert survivor("restrain_groups_total") == len(names)
    assert survivor('restrain_seats_total{kind="retry"}') > 0


@pytest.mark.long
def test_the_retry_of_an_unread_reply_gets_it_from_another_replica(services, redis, prompt):
    one, two = services.start_two(store=redis.url, method=RESTRAIN)
    counted = Since(one, two)
    client = send(one, rollout(prompt, GROUP[0]))
    counted.wait_for("restrain_seats_total", 1)
    others = pairs(ask(two.reward_url, rollouts(prompt, GROUP[1:])))
    assert client.recv(1)
    client.close()
    assert [*pairs(ask(two.reward_url, [rollout(prompt, GROUP[0])])), *others] == expected()
    assert counted('restrain_seats_total{kind="retry"}') == counted("restrain_groups_total") == 1


@pytest.mark.long
@pytest.mark.parametrize("durable", [True, False], ids=["with its data", "having forgotten all"])
def test_a_restarted_redis_loses_nothing(services, own_redis, names, durable):
    redis = own_redis(durable=durable)
    redis.start()
    one, two = services.start_two(store=redis.url, method=RESTRAIN)
    ask_one, counted = openrlhf_client(one.reward_url, two.reward_url), Since(one, two)

    async def scenario():
        waiting = await all_but_last(ask_one, names)
        await counted.reaches("restrain_seats_total", len(names) * FIRST)
        failures = Since(one, two)
        redis.kill()
        late = asyncio.create_task(last(ask_one, names, waiting))
        await failures.reaches("restrain_store_failures_total", 4)
        await asyncio.to_thread(redis.start)
        return await late

    assert asyncio.run(scenario()) == [expected()] * len(names)


@pytest.mark.long
def test_a_rolling_update_of_two_loses_nothing(services, redis, names):
    """Old ones drain and end one after the other, each after its successor has begun, with requests waiting."""
    timing = {"drain": 1, "drain_notice": 0.5}
    old = services.start_two(store=redis.url, method=RESTRAIN, timing=timing)
    replicas, counted = list(old), Since(*old)

    def update():
        for number, replica in enumerate(old):
            replicas[number] = services.start(store=redis.url, method=RESTRAIN)
            assert replica.terminate() == 0

    async def scenario():
        async with round_robin(replicas) as url:
            ask_one = openrlhf_client(url)
            waiting = await all_but_last(ask_one, names)
            await counted.reaches("restrain_seats_total", len(names) * FIRST)
            await asyncio.to_thread(update)
            return await last(ask_one, names, waiting)

    assert asyncio.run(scenario()) == [expected()] * len(names)


@pytest.mark.long
@pytest.mark.parametrize("silence", [0.0, DEAD_AFTER + 1.5 + 2.0], ids=["until the group is answered", "for long"])
def test_a_stopped_replicas_requests_are_taken_over_and_it_answers_them_when_it_goes_on(
    services, redis, prompt, silence
):
    """SIGSTOP: its connections stay open, but it no longer shows that it lives; its group is scored elsewhere.

    After the longer silence its seats were given up too: the results wait for it.
    """
    one, two = services.start_two(store=redis.url, method=RESTRAIN, timing={"retake": 1.5})
    ask_one, ask_two, counted = openrlhf_client(one.reward_url), openrlhf_client(two.reward_url), Since(one)

    async def scenario():
        early = [asyncio.create_task(ask_one(body)) for body in rollouts(prompt)[:2]]
        await counted.reaches("restrain_seats_total", 2)
        os.kill(one.process.pid, signal.SIGSTOP)
        replies = await asyncio.gather(*(ask_two(body) for body in rollouts(prompt)[2:]))
        # While a rollout of the next group waits, this prompt's seats are looked after.
        next_group = [asyncio.create_task(ask_two(rollouts(prompt)[FIRST]))]
        await asyncio.sleep(silence)
        os.kill(one.process.pid, signal.SIGCONT)
        first = [*await asyncio.gather(*early), *replies]
        next_group = [asyncio.create_task(ask_two(body)) for body in rollouts(prompt)[:FIRST]] + next_group
        return first, await asyncio.gather(*next_group)

    assert asyncio.run(scenario()) == (expected(), expected())
