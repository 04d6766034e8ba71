"""Probes on a port of their own: they answer while the service has more to do than it can, and tell when it is dead."""

import asyncio
import time
from collections.abc import Iterator

import httpx
import pytest

pytest.importorskip("fastapi", reason="needs the web stack: pip install restrain-openrlhf[serve]")

from restrain_openrlhf.reward.listening import Address
from restrain_openrlhf.reward.metrics import Metrics
from restrain_openrlhf.reward.probes import State, pulse, side_door
from tests.reward.conftest import free_port, rollout

pytestmark = pytest.mark.timeout(300)
PROBES = ("/healthz", "/readyz", "/startupz", "/metrics")


@pytest.fixture
def door() -> Iterator[tuple[State, str]]:
    """A started service's state, and the address at which a thread tells it."""
    state = State(stall=1.0, listening=True, store_answered=True)
    address = Address("127.0.0.1", free_port(), free_port())
    listening = address.listen_for_probes()
    assert listening is not None
    with side_door(listening, Metrics(), state):
        yield state, f"http://127.0.0.1:{address.probe_port}"


def status(url: str) -> tuple[int, str]:
    reply = httpx.get(url, timeout=60)
    return reply.status_code, reply.json()["status"]


def test_a_main_loop_that_hangs_is_told_by_the_probes_and_forgiven_when_it_turns_again(door):
    state, url = door

    async def scenario():
        async with pulse(state):
            assert await asyncio.to_thread(status, f"{url}/healthz") == (200, "alive")
            # From here nothing awaits: this is the hang.
            until = time.monotonic() + 60
            while status(f"{url}/healthz")[0] == 200:
                assert time.monotonic() < until
            seen = status(f"{url}/healthz"), status(f"{url}/readyz"), status(f"{url}/startupz")
            while state.stalled:
                await asyncio.sleep(0.01)
            return seen, [await asyncio.to_thread(status, url + path) for path in ("/healthz", "/readyz")]

    hung, later = asyncio.run(scenario())
    assert hung == ((503, "stalled"), (503, "stalled"), (200, "started"))
    assert later == [(200, "alive"), (200, "ready")]


@pytest.mark.parametrize(
    ("change", "path", "told"),
    [
        ({"store_answered": False}, "/readyz", (503, "starting")),
        ({"listening": False}, "/startupz", (503, "starting")),
        ({"draining": True}, "/readyz", (503, "draining")),
        ({"draining": True}, "/healthz", (200, "alive")),
    ],
)
def test_what_the_probes_tell(door, change, path, told):
    state, url = door
    for name, value in change.items():
        setattr(state, name, value)
    state.pulse = time.monotonic() + 60
    assert status(url + path) == told


def test_only_probes_are_on_their_port(door):
    _, url = door
    assert httpx.post(f"{url}/get_reward", json=rollout("p", 3)).status_code == 404
    assert httpx.get(f"{url}/openapi.json").status_code == 404


def test_probes_answer_in_the_middle_of_a_flood(services):
    """Six hundred rollouts wait and four callers have group after group scored; nobody stops before the probes do."""
    port = free_port()
    service = services.start(options=["--probe-port", str(port)])
    responses = [{"text": f"\\boxed{{\\frac{{7}}{{{index}}}}}"} for index in range(1, 401)]
    work = {"groups": [{"prompt": f"g{group}", "responses": responses} for group in range(50)]}
    probe = f"http://127.0.0.1:{port}"

    async def scenario():
        async with httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=None)) as client:

            async def keep_busy() -> None:
                while True:
                    (await client.post(f"{service.url}/v1/score", json=work)).raise_for_status()

            flood = [
                *(
                    client.post(service.reward_url, json=rollout(f"p{number // 3}", number % 3))
                    for number in range(600)
                ),
                *(keep_busy() for _ in range(4)),
            ]
            tasks = [asyncio.create_task(one) for one in flood]
            while 'restrain_seats_total{kind="first"} 600.0' not in (await client.get(f"{probe}/metrics")).text:
                await asyncio.sleep(0.1)
            answers = [await client.get(probe + path) for path in PROBES * 5]
            ended = [task for task in tasks if task.done()]
            for task in tasks:
                task.cancel()
            return answers, ended

    answers, ended = asyncio.run(scenario())
    assert ended == []
    assert [reply.status_code for reply in answers] == [200] * len(answers)
    assert "restrain_loop_silence_seconds" in answers[-1].text


def test_stopping_ends_the_probes_last(services):
    port = free_port()
    service = services.start(options=["--probe-port", str(port)], timing={"drain_notice": 2, "drain": 0})
    service.process.terminate()
    until = time.monotonic() + 60
    while status(f"http://127.0.0.1:{port}/readyz") != (503, "draining"):
        assert time.monotonic() < until
    assert status(f"http://127.0.0.1:{port}/healthz") == (200, "alive")
    assert service.process.wait(timeout=60) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/healthz")
