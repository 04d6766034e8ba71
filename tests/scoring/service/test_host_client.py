"""The host's own way from a rollout to its advantages, by HTTP through the service; only generation is made up."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("openrlhf", reason="needs OpenRLHF (make install)")

import torch

pytestmark = pytest.mark.timeout(300)

from restrain_openrlhf.machine.devices import detect  # noqa: E402

detect().install()

from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker  # noqa: E402
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator  # noqa: E402
from openrlhf.utils.agent import SingleTurnAgentExecutor  # noqa: E402

from restrain_openrlhf.data.demo_tasks.tasks import ADDITION  # noqa: E402
from restrain_openrlhf.scoring.wire import NEGATIVE, POSITIVE  # noqa: E402
from tests.scoring.service.clients import RESTRAIN, expected  # noqa: E402

MODEL = ADDITION.model
# Prompt, and the answers of its group; a response without an end was cut off.
GROUPS = {"12+13=": ("25", "25", "35", None), "40+41=": ("81", "71", "91", "61")}


class Engine:
    """Stands in for vLLM: each call gives the prompt's next response."""

    def __init__(self, tokenizer, answers):
        self.tokenizer = tokenizer
        self.responses = (r"\boxed{25}" if answer is None else rf"\boxed{{{answer}}}<eos>" for answer in answers)

    async def generate(self, _prompt, _params, multi_modal_data=None):
        text = next(self.responses)
        reason = "stop" if text.endswith("<eos>") else "length"
        tokens = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return SimpleNamespace(
            outputs=[SimpleNamespace(token_ids=tokens, text=text, finish_reason=reason, logprobs=None)]
        )


@pytest.fixture
def rollouts(standing):
    """The groups' rollouts as Experience objects, made by the host's own code."""
    from transformers import AutoTokenizer

    service = standing(method=RESTRAIN, end_of_text="<eos>", token="t" * 20)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    executor = SingleTurnAgentExecutor(service.reward_url.replace("http://", f"http://user:{'t' * 20}@"))
    params = SimpleNamespace(max_tokens=16, logprobs=None)

    async def together():
        engines = {prompt: Engine(tokenizer, answers) for prompt, answers in GROUPS.items()}
        asked = [
            executor.execute(prompt, "", params, 64, tokenizer, engines[prompt]) for prompt in GROUPS for _ in "1234"
        ]
        return await asyncio.gather(*asked)

    generator = SamplesGenerator.__new__(SamplesGenerator)
    made = [generator._process_response_into_experience(one, max_len=64) for one in asyncio.run(together())]
    return made, tokenizer


def test_the_hosts_estimator_subtracts_the_batchs_mean_from_the_net_advantage_and_no_more(rollouts):
    samples, tokenizer = rollouts
    found = [(sample.info[POSITIVE].item(), sample.info[NEGATIVE].item()) for sample in samples]
    wanted = [pair.expected for answers in GROUPS.values() for pair in expected(answers)]
    assert found == [pytest.approx(pair, rel=1e-6) for pair in wanted]
    net = np.array([sum(pair) for pair in found])
    advantage = SimpleNamespace(estimator="flash_reinforce", no_std_norm=False, gamma=1.0, lambd=1.0)
    arguments = SimpleNamespace(
        algo=SimpleNamespace(advantage=advantage),
        rollout=SimpleNamespace(n_samples_per_prompt=4, max_new_tokens=16, micro_batch_size=8),
        train=SimpleNamespace(dynamic_batch_enable=False),
        reward=SimpleNamespace(clip_range=(-10, 10), overlong_buffer_len=None, stop_properly_penalty_coef=None),
    )
    maker = RemoteExperienceMaker.__new__(RemoteExperienceMaker)
    maker.args, maker.strategy, maker.tokenizer = arguments, SimpleNamespace(args=arguments), tokenizer
    maker.advantage_estimator, maker.kl_ctl = "flash_reinforce", SimpleNamespace(value=0.0)
    (batch,) = maker.split_rollout_samples(samples)
    batch.kl = torch.zeros_like(batch.action_mask, dtype=torch.float32)
    (made,) = maker.compute_advantages_and_returns([batch])
    applied = (made.advantages * made.action_mask).sum(-1) / made.action_mask.sum(-1)
    np.testing.assert_allclose(applied.numpy(), net - net.mean(), atol=1e-6)
