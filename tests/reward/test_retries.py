"""A client that gave up and asks again takes its own place, and a rollout with the same text is another one."""

import asyncio
import random
import socket
import struct
import time

import httpx
import pytest

from tests.reward.clients import GROUP, RESTRAIN, Since, ask, connections, expected, pairs, rollout, rollouts, send

pytestmark = pytest.mark.timeout(120)


def test_whoever_loses_its_connection_takes_its_own_place_again_in_any_order(standing, prompt):
    """Rollouts of twenty groups come, leave and come back at random; each group's last comes when all are back."""
    service, chance = standing(method=RESTRAIN), random.Random(0)
    counted, left = Since(service), 0
    names = [f"{prompt}{number} " for number in range(20)]
    outside = {(name, index): rollout(name, GROUP[index]) for name in names for index in range(3)}
    waiting: dict[tuple[str, int], asyncio.Task] = {}

    async def scenario():
        nonlocal left
        async with connections() as client:

            def come(places, bodies):
                for place in chance.sample(places, len(places)):
                    waiting[place] = asyncio.create_task(client.post(service.reward_url, json=bodies.pop(place)))

            for _ in range(4):
                come(chance.sample(sorted(outside), len(outside) // 2), outside)
                await counted.reaches("restrain_seats_total", left + len(waiting))
                for name, index in chance.sample(sorted(waiting), len(waiting) // 3):
                    waiting.pop((name, index)).cancel()
                    outside[name, index] = rollout(name, GROUP[index])
                    left += 1
                await counted.reaches("restrain_gone_requests_total", left)
            come(sorted(outside), outside)
            await counted.reaches("restrain_seats_total", left + len(waiting))
            last = {(name, 3): rollout(name, GROUP[3]) for name in names}
            come(sorted(last), last)
            return [await waiting[place] for place in sorted(waiting)]

    assert pairs(asyncio.run(scenario())) == expected() * len(names)
    assert counted('restrain_seats_total{kind="retry"}') == left
    assert counted('restrain_groups_total{outcome="full"}') == len(names)


def test_a_client_that_times_out_is_one_that_left(standing, prompt):
    service = standing(method=RESTRAIN)
    counted = Since(service)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(service.reward_url, json=rollout(prompt, 3), timeout=0.5)
    counted.wait_for("restrain_gone_requests_total", 1)
    assert pairs(ask(service.reward_url, rollouts(prompt))) == expected()
    assert counted('restrain_seats_total{kind="retry"}') == 1


def close_unread(client: socket.socket) -> None:
    assert client.recv(1, socket.MSG_PEEK)
    client.close()


def reset(client: socket.socket) -> None:
    assert client.recv(100_000)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@pytest.mark.parametrize("lose", [close_unread, reset])
def test_the_retry_of_a_lost_reply_gets_it(standing, prompt, lose):
    service = standing(method=RESTRAIN)
    counted = Since(service)
    client = send(service, rollout(prompt, GROUP[0]))
    counted.wait_for("restrain_seats_total", 1)
    others = pairs(ask(service.reward_url, rollouts(prompt, GROUP[1:])))
    lose(client)
    (again,) = pairs(ask(service.reward_url, [rollout(prompt, GROUP[0])]))
    assert [again, *others] == expected()
    assert counted('restrain_seats_total{kind="retry"}') == counted("restrain_groups_total") == 1


@pytest.mark.parametrize("limits", [httpx.Limits(max_keepalive_connections=0), httpx.Limits()], ids=["new", "kept"])
def test_a_rollout_with_the_text_of_one_that_was_answered_is_another(standing, prompt, limits):
    """All read their replies, also over connections that the client would keep: three groups of equal texts."""
    service = standing(method=RESTRAIN)
    counted = Since(service)

    async def scenario():
        async with httpx.AsyncClient(timeout=60, limits=limits) as client:
            asked = [[client.post(service.reward_url, json=body) for body in rollouts(prompt)] for _ in range(3)]
            return [pairs(await asyncio.gather(*group)) for group in asked]

    assert asyncio.run(scenario()) == [expected()] * 3
    assert counted('restrain_seats_total{kind="first"}') == counted("restrain_seats_total") == 3 * len(GROUP)


IMPATIENT = {"hold": 1, "retake": 1.1}


def test_a_request_is_told_to_come_again_before_the_client_gives_up(standing, prompt):
    service = standing(method=RESTRAIN, timing=IMPATIENT)
    (reply,) = ask(service.reward_url, [rollout(prompt, 3)])
    assert reply.status_code == 409
    assert reply.headers["retry-after"] == "1"
    assert pairs(ask(service.reward_url, rollouts(prompt))) == expected()


def test_what_nobody_comes_back_for_is_forgotten(standing, prompt):
    """The place of a rollout that waited (p), and the result of one whose reply was not read (q)."""
    service = standing(method=RESTRAIN, timing=IMPATIENT)
    p, q, counted = prompt + "p ", prompt + "q ", Since(service)
    client = send(service, rollout(q, GROUP[0]))
    counted.wait_for("restrain_seats_total", 1)
    ask(service.reward_url, rollouts(q, GROUP[1:]))
    close_unread(client)
    send(service, rollout(p, 6)).close()
    counted.wait_for("restrain_gone_requests_total", 1)
    time.sleep(IMPATIENT["retake"] + 0.3)
    for name in (p, q):
        assert pairs(ask(service.reward_url, rollouts(name))) == expected()
    assert counted('restrain_seats_total{kind="retry"}') == 0


def test_the_deadline_ends_an_incomplete_group_and_late_rollouts_are_neutral_for_a_while(services):
    """Three of five come in time and one late; when the fifth could come, the group is forgotten."""
    timing = {"deadline": 1.5, "keep": 2}
    service = services.start(method=RESTRAIN, group_size=5, timing=timing)
    assert pairs(ask(service.reward_url, rollouts("p", (3, 3, 4)))) == expected((3, 3, 4))
    assert pairs(ask(service.reward_url, [rollout("p", 3)])) == [(0, 0)]
    assert service.metric('restrain_groups_total{outcome="partial"}') == 1
    assert service.metric('restrain_seats_total{kind="late"}') == service.metric("restrain_neutral_rollouts_total") == 1
    time.sleep(timing["keep"] + 0.2)
    assert pairs(ask(service.reward_url, rollouts("p", (3, 3, 3, 4, 5)))) == expected((3, 3, 3, 4, 5))
