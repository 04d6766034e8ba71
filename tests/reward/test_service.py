"""What the running service answers: whole groups, evaluation rows, retries, stragglers, limits, tokens, stopping."""

import asyncio
import signal
import socket
import subprocess
import time

import httpx
import pytest

pytest.importorskip("fastapi", reason="needs the web stack: pip install restrain-openrlhf[serve]")

from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.reward.protocol import EXPECTED_REWARD, NEGATIVE, POSITIVE
from restrain_openrlhf.scoring import GroupScorer
from tests.reward.conftest import TOKEN, free_port, rollout

pytestmark = pytest.mark.timeout(300)


def ask(url: str, bodies: list[dict], **options) -> list[httpx.Response]:
    """All of them at once, each over a connection of its own; the replies in order."""

    async def one(body):
        async with httpx.AsyncClient(timeout=60) as client:
            return await client.post(url, json=body, **options)

    async def together():
        return await asyncio.gather(*map(one, bodies))

    return asyncio.run(together())


def pairs(replies: list[httpx.Response]) -> list[tuple[float, float]]:
    assert [reply.status_code for reply in replies] == [200] * len(replies), [reply.text for reply in replies]
    return [(reply.json()["extra_logs"][POSITIVE], reply.json()["extra_logs"][NEGATIVE]) for reply in replies]


def expected(method: dict, prompt: str, answers: list[str | None]) -> list[tuple[float, float]]:
    pair = GroupScorer(build(parse_settings(method))).score(prompt, answers).pair
    return list(zip(pair.positive.tolist(), pair.negative.tolist(), strict=True))


RESTRAIN = {"name": "restrain", "prompt_weight": "online", "kappa": 2}


def test_a_group_is_answered_together_as_the_trainers_scorer_would(shared):
    service = shared(method=RESTRAIN)
    bodies = [rollout("together", answer) for answer in (3, 3, 4)] + [rollout("together", 3, end="")]
    replies = ask(service.reward_url, bodies)
    assert pairs(replies) == [pytest.approx(pair) for pair in expected(RESTRAIN, "together", ["3", "3", "4", None])]
    for reply in replies:
        body = reply.json()
        assert body["rewards"] == body["scores"] == pytest.approx(sum(pairs([reply])[0]))


def test_several_groups_of_one_prompt_and_groups_of_others_do_not_mix(services):
    service = services.start(method=RESTRAIN)
    bodies = [rollout("p", 1)] * 8 + [rollout("q", answer) for answer in (1, 1, 1, 2)]
    replies = ask(service.reward_url, bodies)
    assert pairs(replies[:8]) == [(0, 0)] * 8
    assert pairs(replies[8:]) == [pytest.approx(pair) for pair in expected(RESTRAIN, "q", ["1", "1", "1", "2"])]
    assert service.metric("restrain_groups_total") == 3


def test_the_expected_reward_can_be_asked_for(services):
    service = services.start(reward="expected")
    replies = ask(service.reward_url, [rollout("p", answer) for answer in (3, 3, 3, 4)])
    assert [reply.json()["rewards"] for reply in replies] == [1, 1, 1, 0]
    assert [reply.json()["extra_logs"][EXPECTED_REWARD] for reply in replies] == [1, 1, 1, 0]


@pytest.mark.parametrize(("answer", "label", "reward"), [("0579", "579", 1), (578, 579, 0), (2, 2.0, 1)])
def test_an_evaluation_row_is_graded_at_once(shared, answer, label, reward):
    (reply,) = ask(shared().reward_url, [rollout("evaluation", answer, end="", label=label)])
    assert reply.json() == {"rewards": reward, "scores": reward, "extra_logs": {}}


def test_labelled_rows_vote_where_the_configuration_says_so(services):
    service = services.start(labelled_rows="vote")
    replies = ask(service.reward_url, [rollout("p", answer, label="3") for answer in (4, 4, 4, 3)])
    assert [pair[0] > 0 for pair in pairs(replies)] == [True, True, True, False]


def test_a_gold_method_gathers_its_labelled_rows(services):
    service = services.start(method={"name": "grpo_gold"})
    replies = ask(service.reward_url, [rollout("p", answer, label=3) for answer in (4, 4, 4, 3)])
    assert [pair[0] > 0 for pair in pairs(replies)] == [False, False, False, True]
    (refused,) = ask(service.reward_url, [rollout("p", 3)])
    assert refused.status_code == 409
    assert "learns from gold answers" in refused.json()["detail"]


def test_a_client_that_leaves_and_comes_back_takes_its_own_place(services):
    service = services.start(method=RESTRAIN)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(service.reward_url, json=rollout("p", 3), timeout=1)
    service.wait_for("restrain_gone_requests_total", 1)
    replies = ask(service.reward_url, [rollout("p", answer) for answer in (3, 3, 4, 4)])
    assert pairs(replies) == [pytest.approx(pair) for pair in expected(RESTRAIN, "p", ["3", "3", "4", "4"])]
    assert service.metric("restrain_groups_total") == 1


def test_a_request_is_told_to_come_again_before_the_client_gives_up(services):
    service = services.start(timing={"hold": 1})
    (reply,) = ask(service.reward_url, [rollout("p", 3)])
    assert reply.status_code == 409
    assert reply.headers["retry-after"] == "1"
    assert len(pairs(ask(service.reward_url, [rollout("p", answer) for answer in (3, 3, 3, 4)]))) == 4


@pytest.mark.parametrize(("stragglers", "positive"), [("score", [True, True, False]), ("neutral", [False] * 3)])
def test_the_deadline_ends_an_incomplete_group_and_is_counted(services, stragglers, positive):
    service = services.start(stragglers=stragglers, timing={"deadline": 2})
    replies = ask(service.reward_url, [rollout("p", answer) for answer in (3, 3, 4)])
    assert [pair[0] > 0 for pair in pairs(replies)] == positive
    (late,) = ask(service.reward_url, [rollout("p", 3)])
    assert pairs([late]) == [(0, 0)]
    assert service.metric("restrain_seats_total") == 4
    assert service.metric("restrain_neutral_rollouts_total") == (1 if stragglers == "score" else 4)


def responses(*answers: int) -> list[dict[str, object]]:
    return [{"text": rf"\boxed{{{answer}}}<|im_end|>"} for answer in answers]


def test_whole_groups_in_one_call(shared):
    service = shared(method=RESTRAIN)
    groups = [
        {"prompt": "p", "responses": [*responses(3, 3, 4), {"text": r"\boxed{3}"}]},
        {"prompt": "q", "responses": [{**one, "finished": one["text"][7] == "1"} for one in responses(1, 1, 2)]},
    ]
    first, second = httpx.post(f"{service.url}/v1/score", json={"groups": groups}).json()["groups"]
    assert first["answers"] == ["3", "3", "4", None]
    assert list(zip(first["advantage_pos"], first["advantage_neg"], strict=True)) == [
        pytest.approx(pair) for pair in expected(RESTRAIN, "p", ["3", "3", "4", None])
    ]
    assert (second["classes"], second["majority_count"]) == ([0, 0, None], 2)


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ({"groups": []}, 422, "body.groups"),
        ({"groups": [{"prompt": "p", "responses": [{"text": "x"}]}] * 3}, 413, "3 groups"),
        ({"groups": [{"prompt": "p", "responses": [{"text": "x"}] * 9}]}, 413, "9 responses"),
        ({"groups": [{"prompt": "p", "responses": ["x"]}]}, 422, "body.groups.0.responses.0"),
    ],
)
def test_wrong_groups_are_refused(shared, body, status, detail):
    service = shared(limits={"groups": 2, "responses": 8})
    reply = httpx.post(f"{service.url}/v1/score", json=body)
    assert reply.status_code == status
    assert detail in reply.json()["detail"]


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


def test_malformed_bodies_are_refused_clearly_and_their_text_is_not_repeated(shared):
    service = shared()
    for body, status in BAD_BODIES:
        reply = httpx.post(service.reward_url, content=body, headers={"content-type": "application/json"})
        assert (body[:60], reply.status_code) == (body[:60], status)
        assert set(reply.json()) == {"detail"}
        assert SECRET_TEXT not in reply.text
        assert "Traceback" not in reply.text
    assert SECRET_TEXT not in service.log.read_text()


def test_a_huge_body_is_refused_before_it_is_read(services):
    service = services.start(limits={"body_bytes": 10_000})
    reply = httpx.post(service.reward_url, json=rollout("p", 3, words="x" * 10_000))
    assert reply.status_code == 413

    def chunks():
        for _ in range(20):
            yield b" " * 1000

    assert httpx.post(service.reward_url, content=chunks()).status_code == 413


def test_more_requests_than_it_holds_wait_and_are_then_served(services):
    """Four places for eight requests: the second group's four are read only when the first group has gone."""
    service = services.start(limits={"pending": 4})
    replies = ask(service.reward_url, [rollout("p", answer) for answer in (3, 3, 3, 4, 5, 5, 5, 6)])
    assert len(pairs(replies)) == 8


def test_a_full_service_refuses_in_the_end(services):
    service = services.start(limits={"pending": 1}, timing={"admission": 1, "hold": 5})
    replies = ask(service.reward_url, [rollout("p", 3), rollout("p", 4)])
    assert sorted(reply.status_code for reply in replies) == [409, 503]
    assert any("pending already" in reply.json()["detail"] for reply in replies)


def test_a_token_is_asked_for_and_appears_nowhere(services):
    service = services.start(token=TOKEN)
    bodies = [rollout("p", answer) for answer in (3, 3, 3, 4)]
    host = service.url.removeprefix("http://")
    for wrong in (service.reward_url, f"http://user:{TOKEN}x@{host}/get_reward", f"http://user@{host}/get_reward"):
        (reply,) = ask(wrong, bodies[:1])
        assert reply.status_code == 401
        assert "basic" in reply.headers["www-authenticate"].lower()
    assert len(pairs(ask(f"http://user:{TOKEN}@{host}/get_reward", bodies))) == 4
    assert len(pairs(ask(f"http://{TOKEN}@{host}/get_reward", bodies))) == 4
    assert len(pairs(ask(service.reward_url, bodies, headers={"Authorization": f"Bearer {TOKEN}"}))) == 4
    assert httpx.post(f"{service.url}/v1/score", json={}).status_code == 401
    assert httpx.get(f"{service.url}/readyz").status_code == 200
    service.terminate()
    assert TOKEN not in service.log.read_text()


def test_probes_and_metrics(services):
    service = services.start(group_size=2)
    assert [httpx.get(f"{service.url}/{probe}").status_code for probe in ("healthz", "readyz", "startupz")] == [200] * 3
    ask(service.reward_url, [rollout("p", 3), rollout("p", 3, end="")])
    text = httpx.get(f"{service.url}/metrics").text
    for line in (
        'restrain_requests_total{path="/get_reward",status="200"} 2.0',
        'restrain_answers_total{kind="truncated"} 1.0',
        'restrain_groups_total{outcome="full"} 1.0',
        "restrain_pending_requests 0.0",
    ):
        assert line in text


def test_stopping_lets_waiting_groups_complete_and_says_so_to_the_balancer(services):
    service = services.start(timing={"drain_notice": 1, "drain": 20})

    async def scenario():
        async with httpx.AsyncClient(timeout=60) as client:
            posts = [
                asyncio.create_task(client.post(service.reward_url, json=rollout("p", answer))) for answer in (3, 3, 3)
            ]
            await asyncio.to_thread(service.wait_for, "restrain_seats_total", 3)
            service.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.3)
            ready = await client.get(f"{service.url}/readyz")
            await asyncio.sleep(1.5)
            posts.append(asyncio.create_task(client.post(service.reward_url, json=rollout("p", 4))))
            return ready, await asyncio.gather(*posts)

    ready, replies = asyncio.run(scenario())
    assert (ready.status_code, ready.json()) == (503, {"status": "draining"})
    assert len(pairs(replies)) == 4
    assert service.process.wait(timeout=30) == 0


def test_what_cannot_complete_while_stopping_is_told_to_ask_again(services):
    service = services.start(timing={"drain_notice": 0, "drain": 1})

    async def scenario():
        async with httpx.AsyncClient(timeout=60) as client:
            post = asyncio.create_task(client.post(service.reward_url, json=rollout("p", 3)))
            await asyncio.to_thread(service.wait_for, "restrain_seats_total", 1)
            service.process.send_signal(signal.SIGTERM)
            return await post

    reply = asyncio.run(scenario())
    assert reply.status_code == 503
    assert "stopping" in reply.json()["detail"]
    assert service.process.wait(timeout=30) == 0


def test_a_slow_body_is_ended(services):
    service = services.start(timing={"body": 1})
    with socket.create_connection(("127.0.0.1", service.port)) as client:
        client.sendall(b"POST /get_reward HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        client.settimeout(20)
        assert b"408" in client.recv(1000)


def test_a_slow_head_is_ended(services):
    service = services.start(timing={"head": 1})
    with socket.create_connection(("127.0.0.1", service.port)) as client:
        client.sendall(b"POST /get_reward HTTP/1.1\r\nHos")
        client.settimeout(20)
        assert client.recv(1000) == b""


def test_a_port_that_is_taken_is_a_clear_error(services):
    port = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        service = services.start()
        config = str(service.log.with_suffix(".yaml"))
        command = [*service.process.args[:3], "serve", "--config", config]
        for ports in (["--port", str(port)], ["--port", str(free_port()), "--probe-port", str(port)]):
            done = subprocess.run([*command, *ports], capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 2
            problem = f"--host 127.0.0.1 {' '.join(ports[-2:])}: cannot be listened on"
            assert problem in done.stderr.strip().splitlines()[-1]


def test_the_log_is_one_json_object_per_line(services):
    service = services.start()
    ask(service.reward_url, [rollout("p", 3, words=SECRET_TEXT) for _ in range(4)])
    httpx.post(service.reward_url, json={})
    time.sleep(0.2)
    service.terminate()
    assert {"starting", "listening", "refused", "draining", "stopped"} <= {event["event"] for event in service.events()}
    assert SECRET_TEXT not in service.log.read_text()
