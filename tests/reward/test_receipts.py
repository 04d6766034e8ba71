"""A reply that its client never read: the retry gets the same one, and no group is short of it or has it twice."""

import asyncio
import json
import socket
import time

import httpx
import pytest

pytest.importorskip("fastapi", reason="needs the web stack: pip install restrain-openrlhf[serve]")

from restrain_openrlhf.reward.protocol import NEGATIVE, POSITIVE
from tests.reward.conftest import Replica, rollout

pytestmark = pytest.mark.timeout(300)

METHOD = {"name": "restrain", "prompt_weight": "online", "kappa": 2}
GROUP = (3, 3, 4, 5)


def send(service: Replica, body: dict) -> socket.socket:
    """A client that has asked and reads nothing."""
    text = json.dumps(body).encode()
    client = socket.create_connection(("127.0.0.1", service.port))
    client.sendall(b"POST /get_reward HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
    return client


def ask(service: Replica, *answers: int) -> list[tuple[float, float]]:
    async def one(answer: int) -> tuple[float, float]:
        async with httpx.AsyncClient(timeout=60) as client:
            reply = await client.post(service.reward_url, json=rollout("p", answer))
        logs = reply.raise_for_status().json()["extra_logs"]
        return logs[POSITIVE], logs[NEGATIVE]

    async def together() -> list[tuple[float, float]]:
        return await asyncio.gather(*map(one, answers))

    return asyncio.run(together())


def arrived(client: socket.socket) -> None:
    """The reply lies in the client's system, unread."""
    client.settimeout(60)
    assert client.recv(1, socket.MSG_PEEK)


def right(service: Replica) -> list[tuple[float, float]]:
    """What the group gets: another one, asked as a whole."""
    groups = [{"prompt": "q", "responses": [{"text": f"\\boxed{{{answer}}}<|im_end|>"} for answer in GROUP]}]
    reply = httpx.post(f"{service.url}/v1/score", json={"groups": groups}).raise_for_status().json()["groups"][0]
    return list(zip(reply["advantage_pos"], reply["advantage_neg"], strict=True))


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_retry_of_an_unread_reply_gets_it(services, request, replicas):
    """With two replicas the retry comes to the other one."""
    store = request.getfixturevalue("redis").url if replicas == 2 else "memory"
    running = [services.start(store=store, method=METHOD) for _ in range(replicas)]
    client = send(running[0], rollout("p", GROUP[0]))
    running[0].wait_for("restrain_seats_total", 1)
    others = ask(running[-1], *GROUP[1:])
    arrived(client)
    client.close()
    assert [*ask(running[-1], GROUP[0]), *others] == [pytest.approx(pair) for pair in right(running[0])]
    assert running[-1].metric('restrain_seats_total{kind="retry"}') == 1
    assert sum(replica.metric('restrain_groups_total{outcome="full"}') for replica in running) == 2


def test_a_rollout_with_the_text_of_one_that_was_answered_is_another(services):
    """All four read their replies, so that the next four are a group of their own although the texts are the same."""
    service = services.start(method=METHOD)
    first, second = ask(service, *GROUP), ask(service, *GROUP)
    assert first == second == [pytest.approx(pair) for pair in right(service)]
    assert service.metric('restrain_seats_total{kind="first"}') == 2 * len(GROUP)
    assert service.metric('restrain_groups_total{outcome="full"}') == 3


def test_a_client_that_would_keep_its_connections_has_every_reply_received(services):
    """Each reply ends its connection, and the client takes another: equal texts are rollouts of their own."""
    service = services.start(method=METHOD, group_size=2)

    async def scenario() -> list[int]:
        async with httpx.AsyncClient(timeout=60) as one, httpx.AsyncClient(timeout=60) as other:
            replies = []
            for _ in range(3):
                asked = (client.post(service.reward_url, json=rollout("p", 3)) for client in (one, other))
                replies += await asyncio.gather(*asked)
            return [reply.status_code for reply in replies]

    assert asyncio.run(scenario()) == [200] * 6
    assert service.metric('restrain_seats_total{kind="first"}') == 6


def test_a_result_nobody_comes_back_for_is_forgotten(services):
    service = services.start(method=METHOD, timing={"retake": 1.5})
    client = send(service, rollout("p", GROUP[0]))
    service.wait_for("restrain_seats_total", 1)
    ask(service, *GROUP[1:])
    arrived(client)
    client.close()
    time.sleep(4)
    assert ask(service, *GROUP) == [pytest.approx(pair) for pair in right(service)]
    assert service.metric('restrain_seats_total{kind="retry"}') == 0
