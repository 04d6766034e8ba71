"""How a service ends: it drains on SIGTERM, and killed it comes back with its clients; its log says what happened."""

import asyncio
import signal
import socket
import time
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.scoring.service.clients import (
    RESTRAIN,
    Since,
    connections,
    expected,
    pairs,
    rollout,
    rollouts,
)
from tests.scoring.service.conftest import NEEDED, Services

pytestmark = pytest.mark.timeout(300)

SECRET_TEXT = "THE-ROLLOUT-TEXT"
DRAIN, LONG = 2, 100


@dataclass
class Ended:
    """What was seen of a service that was told to stop with three rollouts waiting."""

    probes: list[httpx.Response]
    replies: list[httpx.Response]
    status: int
    events: list[dict[str, Any]]
    log: str


@pytest.fixture(scope="module")
def ended(tmp_path_factory) -> Ended:
    """Three of a group, whose last comes while the service drains."""
    pytest.importorskip("uvicorn", reason=NEEDED)
    services = Services(tmp_path_factory.mktemp("ended"))
    service = services.start(method=RESTRAIN, timing={"drain": LONG})
    counted = Since(service)

    async def scenario():
        async with connections() as client:

            def come(body):
                return asyncio.create_task(client.post(service.reward_url, json=body))

            first, last = rollouts("p", (3, 3, 4), words=SECRET_TEXT), rollout("p", 5, words=SECRET_TEXT)
            waiting = [come(body) for body in first]
            await counted.reaches("restrain_slots_total", 3)
            service.process.send_signal(signal.SIGTERM)
            while (await client.get(f"{service.url}/readyz")).status_code == 200:
                await asyncio.sleep(0.01)
            probes = [await client.get(f"{service.url}/{path}") for path in ("readyz", "healthz")]
            return probes, await asyncio.gather(*waiting, come(last))

    try:
        probes, replies = asyncio.run(scenario())
        status = service.process.wait(timeout=60)
        return Ended(probes, replies, status, service.events(), service.log.read_text())
    finally:
        services.end()


def test_a_stopping_service_is_alive_but_not_ready(ended):
    ready, alive = ended.probes
    assert (ready.status_code, ready.json()["status"]) == (503, "draining")
    assert (alive.status_code, alive.json()["status"]) == (200, "alive")


def test_a_waiting_group_completes_while_the_service_drains(ended):
    assert pairs(ended.replies) == expected((3, 3, 4, 5))


def test_what_cannot_complete_is_told_to_ask_again_when_the_drain_is_over(services):
    service = services.start(timing={"drain": DRAIN})
    counted = Since(service)

    async def scenario():
        async with connections() as client:
            alone = asyncio.create_task(client.post(service.reward_url, json=rollout("alone", 3)))
            await counted.reaches("restrain_slots_total", 1)
            since = time.monotonic()
            service.process.send_signal(signal.SIGTERM)
            return await alone, time.monotonic() - since

    reply, seconds = asyncio.run(scenario())
    assert reply.status_code == 503
    assert reply.headers["retry-after"] == "1"
    assert "stopping" in reply.json()["detail"]
    assert seconds > DRAIN


def test_it_ends_with_status_0_and_its_log_is_one_json_object_per_line_without_texts(ended):
    assert ended.status == 0
    assert [event["event"] for event in ended.events] == ["starting", "draining", "stopped"]
    assert SECRET_TEXT not in ended.log


def test_a_port_that_is_taken_is_a_clear_error(services):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        service = services.launch(port=port)
        assert service.process.wait(timeout=60) == 2
    assert f"--host 127.0.0.1 --port {port}: the server cannot listen there" in service.log.read_text()
