"""What really breaks, under OpenRLHF's own client: replicas and Redis killed, connections lost, repeats, disorder.

Every surviving request must get the right answer, and none may wait for ever.
"""

import asyncio
import os
import random
import signal
import time

import pytest

pytest.importorskip("fastapi", reason="needs the web stack: pip install restrain-openrlhf[serve]")
pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from openrlhf.utils.agent import SingleTurnAgentExecutor

from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.reward.protocol import NEGATIVE, POSITIVE
from restrain_openrlhf.reward.seating import DEAD_AFTER
from restrain_openrlhf.scoring import GroupScorer
from tests.reward.conftest import rollout, round_robin

pytestmark = [pytest.mark.host, pytest.mark.timeout(600)]

METHOD = {"name": "restrain", "prompt_weight": "online", "kappa": 2}
N = 4
# A group has duplicates, so that a retry mistaken for a rollout, or the other way round, changes the answer.
GROUP = (3, 3, 4, 5)


def expected(answers) -> list[tuple[float, float]]:
    pair = GroupScorer(build(parse_settings(METHOD))).score("", [str(answer) for answer in answers]).pair
    return [
        (pytest.approx(positive), pytest.approx(negative))
        for positive, negative in zip(pair.positive, pair.negative, strict=True)
    ]


def client_for(*replicas):
    """OpenRLHF's client; it asks several servers in turn, but repeats a request at the same one."""
    return client_of(*(replica.reward_url for replica in replicas))


def client_of(*urls):
    executor = SingleTurnAgentExecutor(list(urls))

    async def ask(body):
        ((reply),) = await executor._fetch_rewards_via_http(body["query"], body["prompts"], body["labels"])
        return reply["extra_logs"][POSITIVE], reply["extra_logs"][NEGATIVE]

    return ask


def prompts(count: int) -> list[str]:
    return [f"prompt {number}: " for number in range(count)]


async def all_but_last(ask, names):
    """Three of four rollouts of each prompt are on their way."""
    return [[asyncio.create_task(ask(rollout(name, answer))) for answer in GROUP[:-1]] for name in names]


async def last(ask, names, tasks):
    """The fourth of each, and all replies."""
    for name, group in zip(names, tasks, strict=True):
        group.append(asyncio.create_task(ask(rollout(name, GROUP[-1]))))
    return [await asyncio.gather(*group) for group in tasks]


def seated(*replicas) -> float:
    return sum(replica.metric("restrain_seats_total") for replica in replicas)


async def until_seated(count, *replicas):
    until = time.monotonic() + 60
    while await asyncio.to_thread(seated, *replicas) < count:
        assert time.monotonic() < until
        await asyncio.sleep(0.1)


def test_a_group_split_over_two_replicas_is_scored_once_and_right(services, redis):
    one, two = (services.start(store=redis.url, method=METHOD) for _ in range(2))
    ask = client_for(one, two)
    names = prompts(20)
    bodies = [(name, index, rollout(name, answer)) for name in names for index, answer in enumerate(GROUP)]
    random.Random(0).shuffle(bodies)

    async def scenario():
        return await asyncio.gather(*(ask(body) for _, _, body in bodies))

    right = expected(GROUP)
    for (_, index, _), pair in zip(bodies, asyncio.run(scenario()), strict=True):
        assert pair == right[index]
    assert one.metric("restrain_groups_total") + two.metric("restrain_groups_total") == len(names)
    assert min(one.metric("restrain_seats_total"), two.metric("restrain_seats_total")) > 0


def test_a_killed_replica_loses_nothing(services, redis):
    one, two = (services.start(store=redis.url, method=METHOD) for _ in range(2))
    names = prompts(10)

    async def scenario():
        async with round_robin([one, two]) as url:
            ask = client_of(url)
            tasks = await all_but_last(ask, names)
            await until_seated(len(names) * (N - 1), one, two)
            one.kill()
            return await last(ask, names, tasks)

    assert asyncio.run(scenario()) == [expected(GROUP)] * len(names)
    assert two.metric("restrain_groups_total") == len(names)
    assert two.metric('restrain_seats_total{kind="retry"}') > 0


@pytest.mark.parametrize("durable", [True, False], ids=["with its data", "having forgotten all"])
def test_a_restarted_redis_loses_nothing(services, start_redis, durable):
    redis = start_redis(durable=durable)
    one, two = (services.start(store=redis.url, method=METHOD) for _ in range(2))
    ask = client_for(one, two)
    names = prompts(10)

    async def scenario():
        tasks = await all_but_last(ask, names)
        await until_seated(len(names) * (N - 1), one, two)
        redis.kill()
        await asyncio.sleep(1)
        late = asyncio.create_task(last(ask, names, tasks))
        await asyncio.sleep(1)
        redis.start()
        return await late

    assert asyncio.run(scenario()) == [expected(GROUP)] * len(names)


def replace(services, service) -> None:
    """A rolling update of one: the new process shares the old one's port, and then the old one is told to stop."""
    services.start(port=service.port, method=METHOD, options=["--reuse-port"])
    assert service.terminate() == 0


def test_a_single_service_is_replaced_without_a_gap(services):
    """What the old one had gathered is gone, but each of its clients asks again and gets a place at the new one."""
    service = services.start(method=METHOD, options=["--reuse-port"], timing={"drain": 0, "drain_notice": 0})
    ask = client_for(service)

    async def scenario():
        tasks = await all_but_last(ask, prompts(3))
        await until_seated(3 * (N - 1), service)
        await asyncio.to_thread(replace, services, service)
        return await last(ask, prompts(3), tasks)

    assert asyncio.run(scenario()) == [expected(GROUP)] * 3


def test_lost_connections_and_their_retries_change_nothing(services):
    service = services.start(method=METHOD)
    ask = client_for(service)
    names = prompts(10)

    async def scenario():
        tasks = await all_but_last(ask, names)
        await until_seated(len(names) * (N - 1), service)
        for group in tasks:
            group[0].cancel()
        await asyncio.sleep(1)
        retried = [
            [asyncio.create_task(ask(rollout(name, GROUP[0]))), *group[1:]]
            for name, group in zip(names, tasks, strict=True)
        ]
        return await last(ask, names, retried)

    assert asyncio.run(scenario()) == [expected(GROUP)] * len(names)
    assert service.metric('restrain_seats_total{kind="retry"}') == len(names)
    assert service.metric("restrain_groups_total") == len(names)


HOSTILE = (
    r"\boxed{" * 3000,
    r"\boxed{\frac{" + "1" * 4000 + "}{0}}",
    r"\boxed{9^{9^{9^{9^{9}}}}}",
    r"\boxed{\sum_{i=1}^{10^9} i!}",
    r"\boxed{\int_0^1 \lim_{x \to 0} \frac{\sin x}{x}}",
    r"\boxed{(((((((((((((((((((((((((((((((((((((}",
    "\\boxed{\0\x1b[31m}",
    "{}" * 50_000,
)


def test_hostile_latex_is_answered(services):
    service = services.start(method=METHOD)
    ask = client_for(service)

    async def scenario():
        groups = [
            [{"query": [f"h{i} {text}<|im_end|>"], "prompts": [f"h{i} "], "labels": [""]}] * N
            for i, text in enumerate(HOSTILE)
        ]
        plain = [rollout("plain", answer) for answer in GROUP]
        return await asyncio.gather(*(ask(body) for group in [*groups, plain] for body in group))

    replies = asyncio.run(scenario())
    assert len(replies) == N * (len(HOSTILE) + 1)
    assert replies[-N:] == expected(GROUP)


def test_a_rolling_update_of_two_loses_nothing(services, redis):
    """Old ones drain and end one after the other, each after its successor has begun, with requests waiting."""
    timing = {"drain": 1, "drain_notice": 0.5}
    old = [services.start(store=redis.url, method=METHOD, timing=timing) for _ in range(2)]
    names = prompts(10)
    replicas = list(old)

    def update():
        for number, replica in enumerate(old):
            replicas[number] = services.start(store=redis.url, method=METHOD)
            assert replica.terminate() == 0

    async def scenario():
        async with round_robin(replicas) as url:
            ask = client_of(url)
            tasks = await all_but_last(ask, names)
            await until_seated(len(names) * (N - 1), *old)
            await asyncio.to_thread(update)
            return await last(ask, names, tasks)

    assert asyncio.run(scenario()) == [expected(GROUP)] * len(names)


def test_a_stopped_replicas_requests_are_taken_over(services, redis):
    """SIGSTOP: its connections stay open, but it no longer shows that it lives; its group is scored elsewhere."""
    one, two = (services.start(store=redis.url, method=METHOD) for _ in range(2))
    ask_one, ask_two = client_for(one), client_for(two)

    async def scenario():
        early = [asyncio.create_task(ask_one(rollout("p", answer))) for answer in GROUP[:2]]
        await until_seated(2, one)
        os.kill(one.process.pid, signal.SIGSTOP)
        late = [asyncio.create_task(ask_two(rollout("p", answer))) for answer in GROUP[2:]]
        replies = await asyncio.gather(*late)
        os.kill(one.process.pid, signal.SIGCONT)
        return [*await asyncio.gather(*early), *replies]

    assert asyncio.run(scenario()) == expected(GROUP)


def test_a_replica_that_was_silent_for_long_still_answers_its_requests(services, redis):
    """Its seats were given up, and the others of its group answered, before it goes on: their results wait for it."""
    one, two = (services.start(store=redis.url, method=METHOD, timing={"retake": 1.5}) for _ in range(2))
    ask_one, ask_two = client_for(one), client_for(two)

    async def scenario():
        early = [asyncio.create_task(ask_one(rollout("p", answer))) for answer in GROUP[:2]]
        await until_seated(2, one)
        os.kill(one.process.pid, signal.SIGSTOP)
        replies = await asyncio.gather(*(ask_two(rollout("p", answer)) for answer in GROUP[2:]))
        # While a rollout of the next group waits, this prompt's seats are looked after.
        next_group = [asyncio.create_task(ask_two(rollout("p", GROUP[-1])))]
        await asyncio.sleep(DEAD_AFTER + 1.5 + 2.0)
        os.kill(one.process.pid, signal.SIGCONT)
        first = [*await asyncio.gather(*early), *replies]
        next_group = [asyncio.create_task(ask_two(rollout("p", answer))) for answer in GROUP[:-1]] + next_group
        return first, await asyncio.gather(*next_group)

    assert asyncio.run(scenario()) == (expected(GROUP), expected(GROUP))
