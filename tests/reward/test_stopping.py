"""How a service ends: it drains on SIGTERM, hands its port to the next one, and says what happened in its log."""

import asyncio
import signal
import socket
import time
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.reward.clients import RESTRAIN, Since, connections, expected, openrlhf_client, pairs, rollout, rollouts
from tests.reward.conftest import Services

pytestmark = pytest.mark.timeout(120)

SECRET_TEXT = "THE-ROLLOUT-TEXT"
NOTICE, DRAIN = 0.3, 2


@dataclass
class Ended:
    """What was seen of a service that was told to stop with four rollouts waiting."""

    probes: dict[str, httpx.Response]
    replies: list[httpx.Response]
    status: int
    events: list[dict[str, Any]]
    log: str
    seconds: float


@pytest.fixture(scope="module")
def ended(tmp_path_factory) -> Ended:
    """Three of a group, whose last comes while the service drains, and one of a group that does not complete."""
    pytest.importorskip("fastapi", reason="needs the web stack: pip install restrain-openrlhf[serve]")
    services = Services(tmp_path_factory.mktemp("ended"))
    service = services.start(method=RESTRAIN, timing={"drain_notice": NOTICE, "drain": DRAIN})
    counted = Since(service)

    async def scenario():
        async with connections() as client:

            def come(body):
                return asyncio.create_task(client.post(service.reward_url, json=body))

            async def is_draining() -> bool:
                return (await client.get(f"{service.probe_url}/readyz")).status_code == 503

            first, last = rollouts("p", (3, 3, 4), words=SECRET_TEXT), rollout("p", 5, words=SECRET_TEXT)
            await client.post(service.reward_url, json={})
            waiting = [come(body) for body in [*first, rollout("alone", 3)]]
            await counted.reaches("restrain_seats_total", 4)
            service.process.send_signal(signal.SIGTERM)
            since = time.monotonic()
            while not await is_draining():
                await asyncio.sleep(0.01)
            bases, paths = {"main": service.url, "own": service.probe_url}, ("readyz", "healthz")
            probes = {f"{port} {path}": await client.get(f"{bases[port]}/{path}") for port in bases for path in paths}
            # After the notice, while it drains.
            await asyncio.sleep(NOTICE + 0.2)
            waiting.insert(3, come(last))
            return probes, await asyncio.gather(*waiting), since

    try:
        probes, replies, since = asyncio.run(scenario())
        status = service.process.wait(timeout=30)
        seconds = time.monotonic() - since
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{service.probe_url}/healthz")
        return Ended(probes, replies, status, service.events(), service.log.read_text(), seconds)
    finally:
        services.end()


def test_a_stopping_service_is_alive_but_not_ready_on_both_ports(ended):
    assert {name: (reply.status_code, reply.json()["status"]) for name, reply in ended.probes.items()} == {
        "main readyz": (503, "draining"),
        "own readyz": (503, "draining"),
        "main healthz": (200, "alive"),
        "own healthz": (200, "alive"),
    }


def test_a_waiting_group_completes_while_the_service_drains(ended):
    assert pairs(ended.replies[:4]) == expected((3, 3, 4, 5))


def test_what_cannot_complete_is_told_to_ask_again_when_the_drain_is_over(ended):
    (reply,) = ended.replies[4:]
    assert reply.status_code == 503
    assert reply.headers["retry-after"] == "1"
    assert "stopping" in reply.json()["detail"]
    assert ended.seconds > NOTICE + DRAIN


def test_it_ends_with_status_0(ended):
    assert ended.status == 0


def test_the_log_is_one_json_object_per_line_without_texts(ended):
    told = [event["event"] for event in ended.events]
    assert {"starting", "listening", "refused", "draining", "stopped"} <= set(told)
    assert SECRET_TEXT not in ended.log


@pytest.mark.host
def test_a_single_service_is_replaced_without_a_gap(services):
    """What the old one had gathered is gone, but each of its clients asks again and gets a place at the new one."""
    options = {"method": RESTRAIN, "options": ["--reuse-port"]}
    service = services.start(timing={"drain": 0, "drain_notice": 0}, **options)
    ask, counted = openrlhf_client(service.reward_url), Since(service)

    async def scenario():
        early = [asyncio.create_task(ask(body)) for body in rollouts("p")[:-1]]
        await counted.reaches("restrain_seats_total", 3)
        await asyncio.to_thread(services.start, port=service.port, **options)
        assert await asyncio.to_thread(service.terminate) == 0
        return await asyncio.gather(*early, ask(rollouts("p")[-1]))

    assert asyncio.run(scenario()) == expected()


def test_a_port_that_is_taken_is_a_clear_error(services):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        begun = [
            services.launch(port=port, probes=False),
            services.launch(options=["--probe-port", str(port)], probes=False),
        ]
        assert [service.process.wait(timeout=60) for service in begun] == [2, 2]
    for flag, service in zip(("--port", "--probe-port"), begun, strict=True):
        problem = f"--host 127.0.0.1 {flag} {port}: cannot be listened on"
        assert problem in service.log.read_text().strip().splitlines()[-1]
