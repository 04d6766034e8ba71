"""When digests of vLLM's weights are written; that they are of the bits it computes with is in tests/machine/cpu."""

import asyncio
import json
from types import SimpleNamespace

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack (make install)")
pytestmark = pytest.mark.host

from restrain_openrlhf.machine.devices import detect  # noqa: E402

detect().install()

from restrain_openrlhf.hook.rollout import held_weights  # noqa: E402
from restrain_openrlhf.machine.host_methods import ORIGINAL  # noqa: E402


class Rollouts:
    """A rollout actor whose host methods answer with what they were given, over an engine of two workers."""

    def __init__(self):
        self.asked = []
        self.llm = SimpleNamespace(collective_rpc=self.collective_rpc)

    async def collective_rpc(self, method):
        self.asked.append(method)
        return [{"lm_head.weight": "ab"}, {"lm_head.weight": "cd"}]

    async def host_method(self, *arguments):
        return arguments


for name in ("update_weight", "update_weight_cuda_ipc"):
    setattr(Rollouts, ORIGINAL + name, Rollouts.host_method)


@pytest.fixture
def actor(monkeypatch):
    context = SimpleNamespace(get_actor_id=lambda: "a1")
    monkeypatch.setattr(held_weights.ray, "get_runtime_context", lambda: context)
    return Rollouts()


def send(actor, by_ipc, is_last):
    """As the host's policy calls it (trainer/ray/ppo_actor.py, broadcast_to_vllm)."""
    given = {"dtype": "bf16", "shape": (2, 3), "empty_cache": is_last}
    if by_ipc:
        sent = held_weights.update_weight_cuda_ipc(actor, "w", ipc_handles={"gpu": 1}, **given)
    else:
        sent = held_weights.update_weight(actor, "w", **given)
    return asyncio.run(sent)


@pytest.mark.parametrize("by_ipc", [False, True])
def test_digests_are_written_after_the_last_weight_of_a_sync(hooked, actor, by_ipc, tmp_path):
    hooked({"name": "ttrl"}, metrics=tmp_path / "metrics.jsonl", weight_digests=True)
    handles = [{"gpu": 1}] if by_ipc else []
    assert send(actor, by_ipc, is_last=False) == ("w", "bf16", (2, 3), *handles, False)
    assert not (tmp_path / "weight_digests").exists()
    assert send(actor, by_ipc, is_last=True) == ("w", "bf16", (2, 3), *handles, True)
    assert actor.asked == [held_weights.held]
    assert json.loads((tmp_path / "weight_digests" / "a1.json").read_text()) == [
        {"lm_head.weight": "ab"},
        {"lm_head.weight": "cd"},
    ]


@pytest.mark.parametrize("settings", [{}, {"weight_digests": True, "metrics": None}])
def test_nobody_is_asked_for_digests_that_nobody_wants(hooked, actor, settings, tmp_path):
    hooked({"name": "ttrl"}, **{"metrics": tmp_path / "metrics.jsonl", **settings})
    send(actor, by_ipc=False, is_last=True)
    assert actor.asked == []
