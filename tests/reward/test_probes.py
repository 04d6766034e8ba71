"""What probes, Prometheus and the log tell, and that probes answer while the service has more to do than it can."""

import asyncio
import time

import httpx
import pytest

pytest.importorskip("fastapi", reason="needs the web stack: pip install restrain-openrlhf[serve]")

from restrain_openrlhf.reward.listening import Address
from restrain_openrlhf.reward.metrics import Metrics
from restrain_openrlhf.reward.probes import State, pulse, side_door
from tests.reward.clients import RESTRAIN, Since, ask, rollout, rollouts
from tests.reward.conftest import free_port

pytestmark = pytest.mark.timeout(120)
PROBES = ("/healthz", "/readyz", "/startupz", "/metrics")


def status(url: str) -> tuple[int, str]:
    reply = httpx.get(url, timeout=60)
    return reply.status_code, reply.json()["status"]


def test_both_ports_answer_probes_and_the_probes_own_nothing_else(standing):
    service = standing(method=RESTRAIN)
    for base in (service.url, service.probe_url):
        assert [service.http.get(base + path).status_code for path in PROBES] == [200] * 4
        assert status(f"{base}/readyz") == (200, "ready")
    assert service.http.post(f"{service.probe_url}/get_reward", json=rollout("p", 3)).status_code == 404
    assert service.http.get(f"{service.probe_url}/openapi.json").status_code == 404


def test_replies_answers_and_groups_are_counted(standing, prompt):
    service = standing(method=RESTRAIN)
    counted = Since(service)
    ask(service.reward_url, [*rollouts(prompt, (3, 3, 3)), rollout(prompt, 3, end="")])
    assert counted('restrain_requests_total{path="/get_reward",status="200"}') == 4
    assert counted('restrain_answers_total{kind="given"}') == 3
    assert counted('restrain_answers_total{kind="truncated"}') == 1
    assert counted('restrain_groups_total{outcome="full"}') == 1
    assert service.metric("restrain_pending_requests") == 0


def test_a_service_is_not_ready_before_its_store_has_answered(services, own_redis):
    redis = own_redis()
    service = services.launch(store=redis.url)
    until = time.monotonic() + 60
    while not any(event["event"] == "listening" for event in service.events()):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert [status(f"{service.url}/{probe}") for probe in ("readyz", "startupz")] == [(503, "starting")] * 2
    assert status(f"{service.url}/healthz") == (200, "alive")
    redis.start()
    service.wait_until_ready()
    assert status(f"{service.url}/startupz") == (200, "started")


def test_a_main_loop_that_hangs_is_told_by_the_probes_and_forgiven_when_it_turns_again():
    """In this process, because a service cannot be made to hang from outside without its probes' thread."""
    state = State(stall=0.6, listening=True, store_answered=True)
    address = Address("127.0.0.1", free_port(), free_port())
    url = f"http://127.0.0.1:{address.probe_port}"

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

    with side_door(address.listen_for_probes(), Metrics(), state):
        hung, later = asyncio.run(scenario())
    assert hung == ((503, "stalled"), (503, "stalled"), (200, "started"))
    assert later == [(200, "alive"), (200, "ready")]


@pytest.mark.long
def test_probes_answer_in_the_middle_of_a_flood(services):
    """Six hundred rollouts wait and four callers have group after group scored; nobody stops before the probes do."""
    service = services.start()
    responses = [{"text": f"\\boxed{{\\frac{{7}}{{{index}}}}}"} for index in range(1, 401)]
    work = {"groups": [{"prompt": f"g{group}", "responses": responses} for group in range(50)]}

    async def scenario():
        async with httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=None)) as client:

            async def keep_busy() -> None:
                while True:
                    (await client.post(f"{service.url}/v1/score", json=work)).raise_for_status()

            async def seated() -> bool:
                text = (await client.get(f"{service.probe_url}/metrics")).text
                return 'restrain_seats_total{kind="first"} 600.0' in text

            flood = [
                *(
                    client.post(service.reward_url, json=rollout(f"p{number // 3}", number % 3))
                    for number in range(600)
                ),
                *(keep_busy() for _ in range(4)),
            ]
            tasks = [asyncio.create_task(one) for one in flood]
            while not await seated():
                await asyncio.sleep(0.1)
            answers = [await client.get(service.probe_url + path) for path in PROBES * 5]
            ended = [task for task in tasks if task.done()]
            for task in tasks:
                task.cancel()
            return answers, ended

    answers, ended = asyncio.run(scenario())
    assert ended == []
    assert [reply.status_code for reply in answers] == [200] * len(answers)
    assert "restrain_loop_silence_seconds" in answers[-1].text
