"""The clients' side of the tests: requests as OpenRLHF sends them, what they should get, and what is counted."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.scoring import GroupScorer
from restrain_openrlhf.scoring.wire import NEGATIVE, POSITIVE
from tests.scoring.service.conftest import END, NO_KEEP_ALIVE, Replica

RESTRAIN = {"name": "restrain", "prompt_weight": "online", "kappa": 2}
# A group with twins, so that a retry mistaken for a rollout, or the other way round, changes the answer.
GROUP = (3, 3, 4, 5)

Pair = tuple[float, float]


def rollout(prompt: str, answer: object, words: str = "", end: str = END, label: Any = "") -> dict[str, list[Any]]:
    """A request body as OpenRLHF's client makes it."""
    return {"query": [f"{prompt}{words}\\boxed{{{answer}}}{end}"], "prompts": [prompt], "labels": [label]}


def rollouts(prompt: str, answers: Sequence[object] = GROUP, **options: Any) -> list[dict[str, list[Any]]]:
    return [rollout(prompt, answer, **options) for answer in answers]


def connections() -> httpx.AsyncClient:
    """A client that opens a connection for each request."""
    return httpx.AsyncClient(timeout=60, limits=NO_KEEP_ALIVE)


def ask(url: str, bodies: Sequence[dict[str, Any]], **options: Any) -> list[httpx.Response]:
    """All of them at once; the replies in order."""

    async def together() -> list[httpx.Response]:
        async with connections() as client:
            return await asyncio.gather(*(client.post(url, json=body, **options) for body in bodies))

    return asyncio.run(together())


def pairs(replies: Sequence[httpx.Response]) -> list[Pair]:
    """A⁺ and A⁻ of each reply."""
    assert [reply.status_code for reply in replies] == [200] * len(replies), [reply.text for reply in replies]
    return [(reply.json()["extra_logs"][POSITIVE], reply.json()["extra_logs"][NEGATIVE]) for reply in replies]


def expected(answers: Sequence[object] = GROUP, method: dict[str, Any] = RESTRAIN) -> list[Any]:
    """What a group gets by the trainer's own scorer."""
    given = [None if answer is None else str(answer) for answer in answers]
    pair = GroupScorer(build(parse_settings(method))).score("", given).pair
    return [pytest.approx(one) for one in zip(pair.positive.tolist(), pair.negative.tolist(), strict=True)]


class Since:
    """What the replicas' counters have counted since this was made."""

    def __init__(self, *replicas: Replica) -> None:
        self.replicas = replicas
        self.before: dict[str, float] = {}
        for line in self._lines():
            name, value = line.rsplit(" ", 1)
            self.before[name] = self.before.get(name, 0.0) + float(value)

    def _lines(self) -> list[str]:
        texts = [replica.http.get("/metrics").text for replica in self.replicas]
        return [line for text in texts for line in text.splitlines() if not line.startswith("#")]

    def __call__(self, name: str) -> float:
        before = sum(value for key, value in self.before.items() if key == name or key.startswith(name + "{"))
        return sum(replica.metric(name) for replica in self.replicas) - before

    def wait_for(self, name: str, value: float, seconds: float = 60) -> None:
        until = time.monotonic() + seconds
        while self(name) < value:
            assert time.monotonic() < until, f"{name} has risen by {self(name)}, not {value}"
            time.sleep(0.02)

    async def reaches(self, name: str, value: float) -> None:
        """`wait_for`, while the loop goes on."""
        await asyncio.to_thread(self.wait_for, name, value)
