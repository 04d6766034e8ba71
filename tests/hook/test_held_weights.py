"""When digests of vLLM's weights are written; that they are of the bits it computes with is in tests/machine/cpu."""

import asyncio
import json
from types import SimpleNamespace

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack (make install)")

from restrain_openrlhf.hook.rollout import samples
from restrain_openrlhf.machine.patching import ORIGINAL


class Engine:
    """An engine of two workers, which answer with what they were given."""

    def __init__(self):
        self.asked = []

    async def collective_rpc(self, method, timeout=None, args=(), kwargs=None):
        self.asked.append(method)
        return [{"lm_head.weight": "ab"}, {"lm_head.weight": "cd"}] if callable(method) else args


@pytest.fixture
def actor(monkeypatch):
    """The host's own rollout actor over that engine, begun as the hook begins it."""
    from openrlhf.trainer.ray.vllm_engine import RolloutRayActor

    context = SimpleNamespace(get_actor_id=lambda: "a1")
    monkeypatch.setattr(samples.ray, "get_runtime_context", lambda: context)

    async def begin(actor, **_):
        actor.llm = Engine()

    host = RolloutRayActor.__ray_metadata__.modified_class
    rollouts = type("Rollouts", (host,), {ORIGINAL + "__init__": begin})
    made = rollouts.__new__(rollouts)
    return lambda: asyncio.run(samples.initialise(made)) or made


def send(actor, by_ipc, is_last):
    """As the host's policy calls it (trainer/ray/ppo_actor.py, broadcast_to_vllm)."""
    given = {"dtype": "bf16", "shape": (2, 3), "empty_cache": is_last}
    if by_ipc:
        return asyncio.run(actor.update_weight_cuda_ipc("w", ipc_handles={"gpu": 1}, **given))
    return asyncio.run(actor.update_weight("w", **given))


@pytest.mark.parametrize("by_ipc", [False, True])
def test_digests_are_written_after_the_last_weight_of_a_sync(hooked, actor, by_ipc, tmp_path):
    hooked({"name": "ttrl"}, metrics=tmp_path / "metrics.jsonl", weight_digests=True)
    actor = actor()
    handles = [{"gpu": 1}] if by_ipc else []
    assert send(actor, by_ipc, is_last=False) == ("w", "bf16", (2, 3), *handles, False)
    assert not (tmp_path / "weight_digests").exists()
    assert send(actor, by_ipc, is_last=True) == ("w", "bf16", (2, 3), *handles, True)
    name = "update_weight_cuda_ipc" if by_ipc else "update_weight"
    assert actor.llm.asked == [name, name, samples.held]
    assert json.loads((tmp_path / "weight_digests" / "a1.json").read_text()) == [
        {"lm_head.weight": "ab"},
        {"lm_head.weight": "cd"},
    ]
