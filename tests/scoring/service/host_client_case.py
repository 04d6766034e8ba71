"""One OpenRLHF release's own remote reward client asks a service: `RELEASE-FOLDER URL`, and rollouts as JSON.

Prints the reward that the host ends up with for each, as JSON. Of the release, the modules of its client are loaded and
nothing around them, so that this runs beside any version of what they require. Rollouts are pairs of prompt and
response, which ends with the text of an end token; up to 0.9.0 the host asks once for all, later for each by itself.
"""

import ast
import asyncio
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np

END, END_TEXT = 0, "<|im_end|>"
# The host's micro-batches, which do not end where groups do.
MICRO_BATCH = 3


class Letters:
    """Token i is the character chr(i), 0 the end."""

    def __call__(self, text, add_special_tokens, return_tensors):
        return {"input_ids": np.array([[ord(letter) for letter in text]])}

    def decode(self, tokens, skip_special_tokens):
        return "".join(END_TEXT if token == END else chr(token) for token in tokens)


class Engine:
    """Stands in for vLLM: it writes one response."""

    def __init__(self, response):
        self.tokens = [ord(letter) for letter in response.removesuffix(END_TEXT)] + [END]

    async def generate(self, _prompt, _params, multi_modal_data=None):
        made = SimpleNamespace(token_ids=self.tokens, finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[made])


def bare_package(folder, name):
    """The host's package without what its __init__ imports."""
    module = ModuleType(name)
    module.__path__ = [str(folder / name.replace(".", "/"))]
    sys.modules[name] = module


def ray_at_once():
    """Ray's functions and actors are called at once."""

    def remote(made):
        made.remote = made
        return made

    ray = ModuleType("ray")
    ray.remote, ray.get = remote, lambda found: found
    sys.modules["ray"] = ray


async def one_by_one(url, rollouts):
    from openrlhf.utils.agent import SingleTurnAgentExecutor

    executor, params = SingleTurnAgentExecutor(url), SimpleNamespace(max_tokens=64, logprobs=None)
    drawn = (executor.execute(prompt, "", params, 128, Letters(), Engine(response)) for prompt, response in rollouts)
    return [rollout["reward"] for rollout in await asyncio.gather(*drawn)]


def all_at_once(folder, url, rollouts):
    import torch
    from openrlhf.utils import remote_rm_utils as client

    asked = [[prompt + response for prompt, response in rollouts], [prompt for prompt, _ in rollouts]]
    asked.append([""] * len(rollouts))
    if hasattr(client, "RemoteRewardModel"):
        replies = client.RemoteRewardModel(None, url).get_rewards(*asked)
    else:
        replies = [client.remote_rm_fn_ray.remote(url, *asked)]
    if isinstance(replies[0], torch.Tensor):
        # 0.8.0 to 0.8.2, make_experience.
        return torch.cat(replies, dim=0).tolist()
    sizes = [len(rollouts[start : start + MICRO_BATCH]) for start in range(0, len(rollouts), MICRO_BATCH)]
    samples = [SimpleNamespace(sequences=[None] * size, info={}) for size in sizes]
    function_of(folder, "update_samples_with_rewards")(replies, samples)
    return torch.cat([sample.rewards for sample in samples]).tolist()


def function_of(folder, name):
    """A function of trainer/ppo_utils/experience_maker.py, of which nothing else is run."""
    import torch

    tree = ast.parse((folder / "openrlhf/trainer/ppo_utils/experience_maker.py").read_text(encoding="utf-8"))
    (found,) = (each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == name)
    namespace = {"torch": torch}
    exec(compile(ast.Module([found], []), name, "exec"), namespace)
    return namespace[name]


def main(folder, url, rollouts):
    for name in ("openrlhf", "openrlhf.utils"):
        bare_package(folder, name)
    if (folder / "openrlhf/utils/remote_rm_utils.py").exists():
        ray_at_once()
        return all_at_once(folder, url, rollouts)
    return asyncio.run(one_by_one(url, rollouts))


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))))
