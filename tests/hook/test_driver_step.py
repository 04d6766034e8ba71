"""What the hook makes quicker in the trainer's process is as the host has it: the returns, and the tokenizer."""

import asyncio
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="needs the training stack: make install")
pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

from restrain_openrlhf.machine.devices import detect  # noqa: E402

detect().install()

from restrain_openrlhf.hook.rollout.sent_tokenizer import SentTokenizer, tokenizer_here  # noqa: E402
from tests.conftest import ROOT  # noqa: E402
from tests.hook.in_process import Letters, Stored, host_arguments, maker_of  # noqa: E402


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_returns_are_the_hosts(hooked, gamma):
    rewards = torch.rand(3, 50, generator=torch.Generator().manual_seed(1)) - 0.5
    mask = (torch.arange(50) < torch.tensor([[50], [20], [0]])).long()
    maker = maker_of(host_arguments(1, 3))
    loop = maker.get_cumulative_returns(rewards, mask, gamma)
    hooked({"name": "ttrl"})
    torch.testing.assert_close(maker.get_cumulative_returns(rewards, mask, gamma), loop)


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


def test_any_other_object_is_the_tokenizer_itself():
    """The agent without our trainer is sent the host's."""
    letters = Letters()
    assert asyncio.run(tokenizer_here(letters)) is letters


@pytest.mark.e2e
def test_the_tokenizer_that_arrives_in_another_process_is_the_one_that_was_sent():
    """Through Ray: template, special tokens, padding and what was set by hand, and one object for all prompts."""
    words = [sys.executable, "-m", "tests.hook.sent_tokenizer_case"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
