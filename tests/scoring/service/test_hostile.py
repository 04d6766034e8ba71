"""Hostile and oversized requests get a clear refusal, or the answer they deserve."""

import asyncio
import socket

import pytest

from tests.scoring.service.clients import RESTRAIN, Since, ask, connections, expected, pairs, rollout, rollouts

pytestmark = pytest.mark.timeout(300)

LIMITS = {"pending": 4, "body_bytes": 10_000}


@pytest.fixture
def strict(standing):
    return standing(limits=LIMITS, timing={"body": 5})


SECRET_TEXT = "THE-ROLLOUT-TEXT"
HUGE = b"9" * 5000
BAD_BODIES = [
    (b"", 400),
    (b"{", 400),
    (b"[" * 100_000, 400),
    (b"[]", 422),
    (b"\xff\xfe\x00", 400),
    (b'{"query": "THE-ROLLOUT-TEXT", "prompts": ["p"], "labels": [""]}', 422),
    (b'{"query": ["THE-ROLLOUT-TEXT", "b"], "prompts": ["p", "q"], "labels": [""]}', 422),
    (b'{"query": [], "prompts": [], "labels": []}', 422),
    (b'{"query": ["THE-ROLLOUT-TEXT"], "prompts": ["p"], "labels": [{}]}', 422),
    (b'{"query": ["THE-ROLLOUT-TEXT"], "prompts": [null], "labels": [""]}', 422),
    (b'{"query": ["\\ud800"], "prompts": ["p"], "labels": [""]}', 400),
    (b'{"query": ["THE-ROLLOUT-TEXT"], "prompts": ["other"], "labels": [""]}', 409),
    (b'{"query": ["p"], "prompts": ["p"], "labels": [%s]}' % HUGE, 400),
]


def test_malformed_bodies_are_refused_clearly_and_their_text_is_not_repeated(standing):
    service = standing(method=RESTRAIN)
    for body, status in BAD_BODIES:
        reply = service.http.post("/get_reward", content=body, headers={"content-type": "application/json"})
        assert (body[:200], reply.status_code) == (body[:200], status)
        assert set(reply.json()) == {"detail"}
        assert SECRET_TEXT not in reply.text
        assert "Traceback" not in reply.text
    assert SECRET_TEXT not in service.log.read_text()


HOSTILE_LATEX = (
    r"\boxed{" * 3000,
    r"\boxed{\frac{" + "1" * 4000 + "}{0}}",
    r"\boxed{9^{9^{9^{9^{9}}}}}",
    r"\boxed{\sum_{i=1}^{10^9} i!}",
    r"\boxed{\int_0^1 \lim_{x \to 0} \frac{\sin x}{x}}",
    r"\boxed{(((((((((((((((((((((((((((((((((((((}",
    "\\boxed{\0\x1b[31m}",
    "{}" * 50_000,
)


def test_hostile_latex_is_answered_and_other_groups_beside_it(standing, prompt):
    service = standing(method=RESTRAIN)
    names = {f"{prompt}{index} ": text for index, text in enumerate(HOSTILE_LATEX)}
    bodies = [{"query": [f"{name}{text}<|im_end|>"], "prompts": [name], "labels": [""]} for name, text in names.items()]
    replies = pairs(ask(service.reward_url, [*(bodies * 4), *rollouts(prompt)]))
    assert replies[-4:] == expected()


def test_a_huge_body_is_refused_whether_or_not_its_length_is_said(strict):
    said = strict.http.post("/get_reward", json=rollout("p", 3, words="x" * 10_000))
    found = strict.http.post("/get_reward", content=(b" " * 1000 for _ in range(20)))
    assert [said.status_code, found.status_code] == [413, 413]


def test_a_body_that_does_not_come_is_not_waited_for(strict):
    with socket.create_connection(("127.0.0.1", strict.port), timeout=60) as client:
        client.sendall(b"POST /get_reward HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert client.recv(1000)[:12] == b"HTTP/1.1 408"


def test_a_full_service_refuses_at_once_and_serves_again_when_there_is_room(strict, prompt):
    """Four rollouts of four groups have the room; the endpoint refuses, the probes do not."""
    counted = Since(strict)

    async def scenario():
        async with connections() as client:
            waiting = [
                asyncio.create_task(client.post(strict.reward_url, json=rollout(f"{prompt}{number} ", 3)))
                for number in range(4)
            ]
            await counted.reaches("restrain_slots_total", 4)
            refused = await client.post(strict.reward_url, json=rollout(prompt, 3))
            ready = await client.get(f"{strict.url}/readyz")
            for task in waiting:
                task.cancel()
            await counted.reaches("restrain_gone_requests_total", 4)
            return refused, ready

    refused, ready = asyncio.run(scenario())
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert "4 requests are pending already" in refused.json()["detail"]
    assert ready.status_code == 200
    assert len(pairs(ask(strict.reward_url, rollouts(prompt)))) == 4
