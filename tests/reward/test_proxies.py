"""Replicas behind real proxies: equal texts stay rollouts of their own, and a client that gave up finds its place."""

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

pytest.importorskip("fastapi", reason="needs the web stack: pip install restrain-openrlhf[serve]")

from tests.reward.conftest import Replica, free_port, rollout

pytestmark = pytest.mark.timeout(300)

METHOD = {"name": "restrain", "prompt_weight": "online", "kappa": 2}
GROUP = (3, 3, 4, 5)
PROMPTS = [f"prompt {number}: " for number in range(10)]

HAPROXY = """
defaults
  mode http
  timeout connect 5s
  timeout client 200s
  timeout server 200s
  option abortonclose
{option}
listen all
  bind 127.0.0.1:{front}
  balance roundrobin
{replicas}
"""
NGINX = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections 4000; }}
http {{
  access_log off;
  client_body_temp_path {folder}/nginx;
  proxy_temp_path {folder}/nginx;
  fastcgi_temp_path {folder}/nginx;
  uwsgi_temp_path {folder}/nginx;
  scgi_temp_path {folder}/nginx;
  upstream replicas {{ {replicas} keepalive 16; }}
  server {{
    listen 127.0.0.1:{front};
    location / {{ proxy_pass http://replicas; proxy_read_timeout 200s; {option} }}
  }}
}}
"""
NGINX_POOL = 'proxy_http_version 1.1; proxy_set_header Connection "";'

PROXIES = {
    "haproxy": ("haproxy", HAPROXY, ""),
    "haproxy, connections shared": ("haproxy", HAPROXY, "  http-reuse always"),
    "nginx": ("nginx", NGINX, ""),
    "nginx, connections kept": ("nginx", NGINX, NGINX_POOL),
}

StartProxy = Callable[..., str]


@pytest.fixture(params=PROXIES)
def start_proxy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartProxy]:
    """Starts the proxy before these replicas; its URL."""
    program, config, option = PROXIES[request.param]
    path = os.pathsep.join((os.environ["PATH"], "/usr/sbin"))
    if not shutil.which(program, path=path):
        pytest.skip(f"needs {program} (Debian: haproxy, nginx-light)")
    started: list[subprocess.Popen[bytes]] = []

    def start(*replicas: Replica) -> str:
        front, file = free_port(), tmp_path / "proxy.conf"
        lines = {
            "haproxy": "\n".join(f"  server s{replica.port} 127.0.0.1:{replica.port}" for replica in replicas),
            "nginx": " ".join(f"server 127.0.0.1:{replica.port};" for replica in replicas),
        }
        file.write_text(config.format(front=front, folder=tmp_path, option=option, replicas=lines[program]))
        words = {"haproxy": ["-q", "-f", str(file)], "nginx": ["-c", str(file)]}
        started.append(subprocess.Popen([program, *words[program]], env={**os.environ, "PATH": path}))
        url = f"http://127.0.0.1:{front}"
        _wait_for(f"{url}/readyz")
        return f"{url}/get_reward"

    yield start
    for process in started:
        process.terminate()
        process.wait()


def _wait_for(url: str, seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.TransportError:
            assert time.monotonic() < until, f"{url} does not answer"
        time.sleep(0.05)


async def ask(url: str, prompt: str, answer: int) -> float:
    """One rollout over a connection of its own, as OpenRLHF's client sends them; its reward."""
    async with httpx.AsyncClient(timeout=60) as client:
        reply = await client.post(url, json=rollout(prompt, answer))
    return float(reply.raise_for_status().json()["rewards"])


async def ask_all(url: str) -> list[float]:
    return await asyncio.gather(*(ask(url, prompt, answer) for prompt in PROMPTS for answer in GROUP))


def right(service: Replica) -> list[float]:
    """What every group gets: another one, scored as a whole."""
    groups = [{"prompt": "q", "responses": [{"text": f"\\boxed{{{answer}}}<|im_end|>"} for answer in GROUP]}]
    (scored,) = httpx.post(f"{service.url}/v1/score", json={"groups": groups}).raise_for_status().json()["groups"]
    pairs = zip(scored["advantage_pos"], scored["advantage_neg"], strict=True)
    return [pytest.approx(positive + negative) for positive, negative in pairs]


def total(metric: str, *replicas: Replica) -> float:
    return sum(replica.metric(metric) for replica in replicas)


def test_equal_texts_right_after_another_are_groups_of_their_own(services, redis, start_proxy):
    """HAProxy resets connections it took replies from; the next group must not look like their retries."""
    replicas = [services.start(store=redis.url, method=METHOD) for _ in range(2)]
    url = start_proxy(*replicas)
    for _ in range(5):
        assert asyncio.run(ask_all(url)) == right(replicas[0]) * len(PROMPTS)
    assert total('restrain_seats_total{kind="first"}', *replicas) == 5 * len(PROMPTS) * len(GROUP)
    assert total('restrain_seats_total{kind="retry"}', *replicas) == 0


@pytest.mark.parametrize("start_proxy", ["haproxy", "nginx"], indirect=True)
def test_who_gave_up_behind_a_proxy_finds_its_place_again(services, redis, start_proxy):
    replicas = [services.start(store=redis.url, method=METHOD) for _ in range(2)]
    url = start_proxy(*replicas)

    async def scenario() -> list[float]:
        early = [[asyncio.create_task(ask(url, prompt, answer)) for answer in GROUP[:-1]] for prompt in PROMPTS]
        while await asyncio.to_thread(total, "restrain_seats_total", *replicas) < len(PROMPTS) * 3:
            await asyncio.sleep(0.1)
        for group in early:
            group[0].cancel()
        while await asyncio.to_thread(total, "restrain_gone_requests_total", *replicas) < len(PROMPTS):
            await asyncio.sleep(0.1)
        again = [
            [ask(url, prompt, GROUP[0]), *group[1:], ask(url, prompt, GROUP[-1])]
            for prompt, group in zip(PROMPTS, early, strict=True)
        ]
        return await asyncio.gather(*(one for group in again for one in group))

    assert asyncio.run(scenario()) == right(replicas[0]) * len(PROMPTS)
    assert total('restrain_seats_total{kind="retry"}', *replicas) == len(PROMPTS)
