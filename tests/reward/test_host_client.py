"""The host's own way from a rollout to its advantages, by HTTP through the service; only generation is made up."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the training stack (make install)")
pytest.importorskip("openrlhf", reason="needs OpenRLHF (make install)")
pytest.importorskip("fastapi", reason="needs the web stack: pip install restrain-openrlhf[serve]")
pytestmark = [pytest.mark.host, pytest.mark.timeout(120)]

from restrain_openrlhf.devices import detect  # noqa: E402

detect().install()

from openrlhf.trainer.ppo_utils.experience import Experience  # noqa: E402
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker  # noqa: E402
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator  # noqa: E402
from openrlhf.utils.agent import SingleTurnAgentExecutor  # noqa: E402

from restrain_openrlhf.demo.run import MODEL  # noqa: E402
from restrain_openrlhf.hook.experience import score_groups  # noqa: E402
from restrain_openrlhf.hook.groups import group_rollouts  # noqa: E402
from restrain_openrlhf.hook.settings import HookSettings  # noqa: E402
from restrain_openrlhf.method import parse_settings  # noqa: E402

METHOD = {"name": "restrain", "prompt_weight": "online", "kappa": 2}
# Prompt, and the responses of its group; one without an end was cut off.
GROUPS = {
    "12+13=": (r"\boxed{25}<eos>", r"\boxed{25}<eos>", r"\boxed{35}<eos>", r"\boxed{25}"),
    "40+41=": (r"\boxed{81}<eos>", r"\boxed{71}<eos>", r"\boxed{91}<eos>", r"\boxed{61}<eos>"),
}


class Engine:
    """Stands in for vLLM: each call gives the prompt's next response."""

    def __init__(self, tokenizer, responses):
        self.tokenizer, self.responses = tokenizer, iter(responses)

    async def generate(self, _prompt, _params, multi_modal_data=None):
        text = next(self.responses)
        output = SimpleNamespace(
            token_ids=self.tokenizer(text, add_special_tokens=False)["input_ids"],
            text=text,
            finish_reason="stop" if text.endswith("<eos>") else "length",
            logprobs=None,
        )
        return SimpleNamespace(outputs=[output])


@pytest.fixture
def rollouts(standing):
    """The groups' rollouts as Experience objects, made by the host's own code."""
    from transformers import AutoTokenizer

    service = standing(method=METHOD, group_size=4, end_of_text=None, model=str(MODEL), token="t" * 20)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    executor = SingleTurnAgentExecutor(service.reward_url.replace("http://", f"http://user:{'t' * 20}@"))
    params = SimpleNamespace(max_tokens=16, logprobs=None)

    async def together():
        return await asyncio.gather(
            *(
                executor.execute(prompt, "", params, 64, tokenizer, engine)
                for prompt, responses in GROUPS.items()
                for engine in [Engine(tokenizer, responses)]
                for _ in responses
            )
        )

    generator = SamplesGenerator.__new__(SamplesGenerator)
    made = [generator._process_response_into_experience(one, max_len=64) for one in asyncio.run(together())]
    return made, tokenizer


def nets(groups):
    settings = HookSettings(method=parse_settings(METHOD))
    return np.concatenate([score.pair.net for score in score_groups(groups, settings)])


def test_with_the_hook_the_services_scores_are_the_hooks_own(rollouts):
    samples, tokenizer = rollouts
    groups = group_rollouts(samples, 4, tokenizer)
    assert groups[0].answers == ("25", "25", "35", None)
    own = score_groups(groups, HookSettings(method=parse_settings(METHOD)))
    served = score_groups(groups, HookSettings(method=parse_settings(METHOD), advantages="service"))
    assert [score.penalized for score in served] == [score.penalized for score in own] == [False, True]
    for theirs, mine in zip(served, own, strict=True):
        for name in ("positive", "negative"):
            np.testing.assert_allclose(getattr(theirs.pair, name), getattr(mine.pair, name), rtol=1e-6)
        np.testing.assert_allclose(theirs.rewards, mine.rewards, rtol=1e-6)
        assert (theirs.prompt_weight, theirs.kl_weight) == pytest.approx((mine.prompt_weight, mine.kl_weight))


def test_without_it_the_hosts_estimator_subtracts_the_batchs_mean_and_no_more(rollouts):
    samples, tokenizer = rollouts
    net = nets(group_rollouts(samples, 4, tokenizer))
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
    assert isinstance(batch, Experience)
    batch.kl = torch.zeros_like(batch.action_mask, dtype=torch.float32)
    (made,) = maker.compute_advantages_and_returns([batch])
    found = (made.advantages * made.action_mask).sum(-1) / made.action_mask.sum(-1)
    np.testing.assert_allclose(found.numpy(), net - net.mean(), atol=1e-6)
