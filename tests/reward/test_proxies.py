"""Replicas behind real proxies: equal texts stay rollouts of their own, and a client that gave up finds its place."""

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("fastapi", reason="needs the web stack: pip install restrain-openrlhf[serve]")

from tests.reward.clients import GROUP, RESTRAIN, Since, ask, connections, expected, pairs, rollout, rollouts
from tests.reward.conftest import Replica, Services, free_port

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

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


@pytest.fixture(scope="module")
def replicas(redis, tmp_path_factory) -> Iterator[list[Replica]]:
    services = Services(tmp_path_factory.mktemp("replicas"))
    yield services.start_two(store=redis.url, method=RESTRAIN)
    services.end()


@pytest.fixture(params=PROXIES)
def url(request: pytest.FixtureRequest, tmp_path: Path, replicas: list[Replica]) -> Iterator[str]:
    """The address of a proxy before the replicas."""
    program, config, option = PROXIES[request.param]
    path = os.pathsep.join((os.environ["PATH"], "/usr/sbin"))
    if not shutil.which(program, path=path):
        pytest.skip(f"needs {program} (Debian: haproxy, nginx-light)")
    front, file = free_port(), tmp_path / "proxy.conf"
    lines = {
        "haproxy": "\n".join(f"  server s{replica.port} 127.0.0.1:{replica.port}" for replica in replicas),
        "nginx": " ".join(f"server 127.0.0.1:{replica.port};" for replica in replicas),
    }
    file.write_text(config.format(front=front, folder=tmp_path, option=option, replicas=lines[program]))
    words = {"haproxy": ["-q", "-f", str(file)], "nginx": ["-c", str(file)]}
    process = subprocess.Popen([program, *words[program]], env={**os.environ, "PATH": path})
    _wait_for(f"http://127.0.0.1:{front}/readyz")
    yield f"http://127.0.0.1:{front}/get_reward"
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


@pytest.fixture
def names(prompt: str) -> list[str]:
    return [f"{prompt}{number} " for number in range(10)]


def test_equal_texts_right_after_another_are_groups_of_their_own(replicas, url, names):
    """HAProxy resets connections it took replies from; the next group must not look like their retries."""
    counted = Since(*replicas)
    for _ in range(5):
        assert pairs(ask(url, [body for name in names for body in rollouts(name)])) == expected() * len(names)
    assert counted('restrain_seats_total{kind="first"}') == 5 * len(names) * len(GROUP)
    assert counted('restrain_seats_total{kind="retry"}') == 0


@pytest.mark.parametrize("url", ["haproxy", "nginx"], indirect=True)
def test_who_gave_up_behind_a_proxy_finds_its_place_again(replicas, url, names):
    counted = Since(*replicas)

    async def scenario() -> list[httpx.Response]:
        async with connections() as client:

            def come(body: dict[str, Any]) -> asyncio.Task[httpx.Response]:
                return asyncio.create_task(client.post(url, json=body))

            early = [[come(body) for body in rollouts(name)[:-1]] for name in names]
            await counted.reaches("restrain_seats_total", len(names) * 3)
            for group in early:
                group[0].cancel()
            await counted.reaches("restrain_gone_requests_total", len(names))
            again = [
                [come(rollout(name, GROUP[0])), *group[1:], come(rollout(name, GROUP[-1]))]
                for name, group in zip(names, early, strict=True)
            ]
            return await asyncio.gather(*(one for group in again for one in group))

    assert pairs(asyncio.run(scenario())) == expected() * len(names)
    assert counted('restrain_seats_total{kind="retry"}') == len(names)
