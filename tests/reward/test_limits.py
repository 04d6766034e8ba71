"""Hostile and oversized requests get a clear refusal, or the answer they deserve; too many of them wait."""

import asyncio
import socket

import pytest

from tests.reward.clients import RESTRAIN, Since, ask, connections, expected, pairs, rollout, rollouts

pytestmark = pytest.mark.timeout(120)

LIMITS = {"pending": 4, "body_bytes": 10_000, "groups": 2, "responses": 8}
TIMING = {"admission": 1, "head": 1, "body": 1}


@pytest.fixture
def strict(standing):
    return standing(limits=LIMITS, timing=TIMING)


SECRET_TEXT = "THE-ROLLOUT-TEXT"
BAD_BODIES = [
    (b"", 400),
    (b"{", 400),
    (b"[" * 100_000, 400),
    (b"[]", 422),
    (b'{"query": "THE-ROLLOUT-TEXT", "prompts": ["p"], "labels": [""]}', 422),
    (b'{"query": ["THE-ROLLOUT-TEXT", "b"], "prompts": ["p", "q"], "labels": ["", ""]}', 422),
    (b'{"query": ["THE-ROLLOUT-TEXT"], "prompts": ["p"], "labels": [{}]}', 422),
    (b'{"query": ["THE-ROLLOUT-TEXT"], "prompts": [null], "labels": [""]}', 422),
    (b'{"query": ["\\ud800"], "prompts": ["p"], "labels": [""]}', 400),
    (b'{"query": ["THE-ROLLOUT-TEXT"], "prompts": ["other"], "labels": [""]}', 409),
    (b"\xff\xfe\x00", 400),
]


def test_malformed_bodies_are_refused_clearly_and_their_text_is_not_repeated(standing):
    service = standing(method=RESTRAIN)
    for body, status in BAD_BODIES:
        reply = service.http.post("/get_reward", content=body, headers={"content-type": "application/json"})
        assert (body[:60], reply.status_code) == (body[:60], status)
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
    names = {f"{prompt}{index} ": text for index, text in enumerate(HOSTILE_LATEX)}
    bodies = [{"query": [f"{name}{text}<|im_end|>"], "prompts": [name], "labels": [""]} for name, text in names.items()]
    replies = pairs(ask(standing(method=RESTRAIN).reward_url, [*(bodies * 4), *rollouts(prompt)]))
    assert replies[-4:] == expected()


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ({"groups": []}, 422, "body.groups"),
        ({"groups": [{"prompt": "p", "responses": [{"text": "x"}]}] * 3}, 413, "3 groups"),
        ({"groups": [{"prompt": "p", "responses": [{"text": "x"}] * 9}]}, 413, "9 responses"),
        ({"groups": [{"prompt": "p", "responses": ["x"]}]}, 422, "body.groups.0.responses.0"),
    ],
)
def test_wrong_groups_are_refused(strict, body, status, detail):
    reply = strict.http.post("/v1/score", json=body)
    assert reply.status_code == status
    assert detail in reply.json()["detail"]


def test_a_huge_body_is_refused_whether_or_not_its_length_is_said(strict):
    said = strict.http.post("/get_reward", json=rollout("p", 3, words="x" * 10_000))
    found = strict.http.post("/get_reward", content=(b" " * 1000 for _ in range(20)))
    assert [said.status_code, found.status_code] == [413, 413]


def test_more_requests_than_it_holds_wait_and_are_then_served(strict, prompt):
    """Four places for eight requests: the second group's four are read only when the first group has gone."""
    assert len(pairs(ask(strict.reward_url, rollouts(prompt, (3, 3, 3, 4, 5, 5, 5, 6))))) == 8


def test_a_full_service_refuses_in_the_end(strict, prompt):
    """Four rollouts of four groups have the places."""
    counted = Since(strict)

    async def scenario():
        async with connections() as client:
            waiting = [
                asyncio.create_task(client.post(strict.reward_url, json=rollout(f"{prompt}{number} ", 3)))
                for number in range(4)
            ]
            await counted.reaches("restrain_seats_total", 4)
            refused = await client.post(strict.reward_url, json=rollout(prompt, 3))
            for task in waiting:
                task.cancel()
            await counted.reaches("restrain_gone_requests_total", 4)
            return refused

    refused = asyncio.run(scenario())
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert "4 requests are pending already" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("beginning", "end"),
    [
        (b"POST /get_reward HTTP/1.1\r\nHos", b""),
        (b"POST /get_reward HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", b"HTTP/1.1 408"),
    ],
    ids=["head", "body"],
)
def test_a_slow_head_or_body_is_ended(strict, beginning, end):
    with socket.create_connection(("127.0.0.1", strict.port), timeout=30) as client:
        client.sendall(beginning)
        assert client.recv(1000)[:12] == end
