"""The agent's file alone in one OpenRLHF release, over a made-up engine: groups drawn and scored, and their advantages.

Run as a program with the release first on its path, and cases by name as JSON. For each it loads the agent by the
release's own `_load_agent_executor`, draws by its own `generate_responses`, and takes what is drawn through its own
`_process_response_into_experience` and `compute_advantages_and_returns`. Prints JSON by the same names.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

from restrain_openrlhf.machine.flash_attention import provide_flash_attention

provide_flash_attention()

import torch  # noqa: E402
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker  # noqa: E402
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator  # noqa: E402
from openrlhf.trainer.ray import vllm_engine  # noqa: E402
from vllm import SamplingParams  # noqa: E402
from vllm.logprobs import Logprob  # noqa: E402

from restrain_openrlhf.config.host_flags import agent_path  # noqa: E402

END = 0
CUT = "~"
PROMPT = "1+1="
(HOST,) = (
    made.__ray_metadata__.modified_class
    for name, made in vars(vllm_engine).items()
    if name in {"RolloutRayActor", "LLMRayActor"}
)


class Letters:
    """Token i is the character chr(i), 0 the end."""

    pad_token_id = END

    def __call__(self, text, add_special_tokens, return_tensors):
        return {"input_ids": torch.tensor([[ord(letter) for letter in text]])}

    def decode(self, tokens, skip_special_tokens):
        return "".join(chr(token) for token in tokens if token != END)


class Actor(HOST):
    """The release's rollout actor over an engine that writes the responses in turn, and takes no images."""

    def __init__(self, responses):
        self.executor = vllm_engine._load_agent_executor(str(agent_path()))
        self.responses = iter(responses)

    async def generate(self, prompt_token_ids, sampling_params):
        response = next(self.responses)
        tokens = [ord(letter) for letter in response.removesuffix(CUT)] + ([] if response.endswith(CUT) else [END])
        logprobs = None
        if sampling_params.logprobs is not None:
            logprobs = [{token: Logprob(0.0, rank=1)} for token in tokens]
        reason = "length" if response.endswith(CUT) else "stop"
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=tokens, finish_reason=reason, logprobs=logprobs)])


def drawn(text, responses, n, label="", temperature=1.0):
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RESTRAIN_CONFIG"] = str(Path(folder, "restrain.yaml"))
        Path(folder, "restrain.yaml").write_text(text, encoding="utf-8")
        actor = Actor(responses)

        async def group(of, temperature):
            params = SamplingParams(max_tokens=40, temperature=temperature)
            asked = {"prompt": PROMPT, "label": label, "sampling_params": params, "max_length": 64}
            return await actor.generate_responses(**asked, hf_tokenizer=Letters(), num_samples=of)

        return asyncio.run(group(n, temperature))


def trained_with(rollouts):
    """The advantages that the host trains with, by the estimator that the page of integration names."""
    generator = SamplesGenerator.__new__(SamplesGenerator)
    samples = [generator._process_response_into_experience(rollout, max_len=64) for rollout in rollouts]
    arguments = both_spellings(len(rollouts))
    maker = RemoteExperienceMaker.__new__(RemoteExperienceMaker)
    maker.args, maker.strategy, maker.tokenizer = arguments, SimpleNamespace(args=arguments), Letters()
    maker.advantage_estimator, maker.kl_ctl = "reinforce", SimpleNamespace(value=0.0)
    (batch,) = maker.split_rollout_samples(samples)
    batch.kl = torch.zeros_like(batch.action_mask, dtype=torch.float32)
    (made,) = maker.compute_advantages_and_returns([batch])
    return ((made.advantages * made.action_mask).sum(-1) / made.action_mask.sum(-1)).tolist()


def both_spellings(n):
    """The host's flags as they are called since 0.10.2, and as before."""
    return SimpleNamespace(
        algo=SimpleNamespace(advantage=SimpleNamespace(estimator="reinforce", no_std_norm=True, gamma=1.0, lambd=1.0)),
        rollout=SimpleNamespace(n_samples_per_prompt=n, max_new_tokens=40, micro_batch_size=8),
        train=SimpleNamespace(dynamic_batch_enable=False),
        reward=SimpleNamespace(clip_range=(-10, 10), overlong_buffer_len=None, stop_properly_penalty_coef=None),
        advantage_estimator="reinforce",
        no_advantage_std_norm=True,
        gamma=1.0,
        lambd=1.0,
        n_samples_per_prompt=n,
        micro_rollout_batch_size=8,
        use_dynamic_batch=False,
        reward_clip_range=(-10, 10),
        overlong_buffer_len=None,
        stop_properly_penalty_coef=None,
        max_new_tokens=40,
        generate_max_len=40,
    )


def main(cases):
    found = {}
    for name, case in cases.items():
        rollouts = drawn(**case)
        logs = [rollout["extra_logs"] for rollout in rollouts]
        found[name] = {
            "rewards": [rollout["reward"] for rollout in rollouts],
            "scores": [rollout["scores"] for rollout in rollouts],
            "voters": [log["restrain/voters"] for log in logs],
            "advantages": trained_with(rollouts),
        }
    return found


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
