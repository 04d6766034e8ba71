"""What the hook makes quicker in the trainer's process is as the host has it: the returns, and the tokenizer."""

import asyncio
from types import SimpleNamespace

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

import torch
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator

from restrain_openrlhf.hook.agent import as_arrays
from restrain_openrlhf.hook.rollout.samples import SentTokenizer, tokenizer_here
from tests.hook.in_process import Letters, Stored, host_arguments, maker_of


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_returns_are_the_hosts(hooked, gamma):
    rewards = torch.rand(3, 50, generator=torch.Generator().manual_seed(1)) - 0.5
    mask = (torch.arange(50) < torch.tensor([[50], [20], [0]])).long()
    maker = maker_of(host_arguments(1, 3))
    loop = maker.get_cumulative_returns(rewards, mask, gamma)
    hooked({"name": "ttrl"})
    torch.testing.assert_close(maker.get_cumulative_returns(rewards, mask, gamma), loop)


@pytest.mark.parametrize("log_probs", [[0.0, 0.0, -0.1, -1e-9, -30.0, -0.7], None])
@pytest.mark.parametrize("max_len", [4, 64])
def test_the_host_makes_of_arrays_what_it_makes_of_lists(log_probs, max_len):
    """Read-only, as Ray hands them out."""
    generator = SamplesGenerator(SimpleNamespace(args=None), None, None, None, [])
    rollout = {
        "prompt": "p",
        "label": "",
        "observation_tokens": [151_642, 7, 3, 0, 9, 151_642],
        "action_ranges": [(2, 6)],
        "rollout_log_probs": log_probs,
        "reward": 0.5,
        "extra_logs": {},
    }
    arrays = as_arrays(rollout)
    for each in (arrays["observation_tokens"], arrays["rollout_log_probs"]):
        if each is not None:
            each.flags.writeable = False
    of_lists, of_arrays = (
        vars(generator._process_response_into_experience(each, max_len=max_len)) for each in (rollout, arrays)
    )
    for name in ("sequences", "attention_mask", "action_mask", "rollout_log_probs"):
        one, other = of_lists[name], of_arrays[name]
        assert (one is None) == (other is None)
        if one is not None:
            assert one.dtype == other.dtype
            assert torch.equal(one, other)


def test_rollouts_of_a_process_share_one_tokenizer_that_is_loaded_once():
    loaded = []

    class Slow(Stored):
        def __await__(self):
            loaded.append(self.value)
            yield from asyncio.sleep(0.01).__await__()
            return self.value

    async def ask():
        sent = SentTokenizer(Slow(Letters()))
        return await asyncio.gather(*(tokenizer_here(sent) for _ in range(4)))

    assert len(set(map(id, asyncio.run(ask())))) == len(loaded) == 1
