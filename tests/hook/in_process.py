"""OpenRLHF's own classes in one process: everything of the host runs but Ray, vLLM's engine and the models.

A script says what the engine writes; from the dataloader to Experience.info, the host's code does the rest.
"""

import asyncio
import math
import pickle
from functools import partial
from types import SimpleNamespace

import torch
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
from openrlhf.trainer.ppo_utils.kl_controller import FixedKLController
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
from openrlhf.trainer.ray.vllm_engine import RolloutRayActor
from openrlhf.utils.agent import SingleTurnAgentExecutor
from openrlhf.utils.config import hierarchize
from vllm import SamplingParams
from vllm.logprobs import Logprob

from restrain_openrlhf.config.host_flags import parse, to_arguments
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.hook.agent import AgentExecutor, Call
from restrain_openrlhf.hook.install.environment import config_here
from restrain_openrlhf.hook.install.instrument import is_active
from restrain_openrlhf.hook.rollout.training_data import mark_training
from restrain_openrlhf.method import build, parse_settings

EOS = 0
HALF = math.log(0.5)
# A response that ends with this sign was cut off there.
CUT = "~"
LENGTHS = {"max_new_tokens": 40, "max_len": 64}


class Letters:
    """Token i is the character chr(i), 0 the end."""

    pad_token_id = EOS

    def __call__(self, text, add_special_tokens, return_tensors):
        return {"input_ids": torch.tensor([[ord(letter) for letter in text]])}

    def decode(self, tokens, skip_special_tokens):
        flat = torch.as_tensor(tokens).flatten().tolist()
        return "".join(chr(token) for token in flat if token != EOS)

    def batch_decode(self, sequences, skip_special_tokens):
        return [self.decode(tokens, skip_special_tokens) for tokens in sequences]


def log_prob(token):
    """The policy's log-probability of a token: it is unsure of digits alone, and of those between two."""
    return HALF if chr(token).isdigit() else 0.0


def likely(token):
    """vLLM's log-probabilities at a sampled token."""
    if not chr(token).isdigit():
        return {token: Logprob(0.0, rank=1), EOS + 1: Logprob(-math.inf, rank=2)}
    other = ord("9") if token != ord("9") else ord("8")
    return {token: Logprob(HALF, rank=2), other: Logprob(HALF, rank=1)}


def written(response, sampling_params, likely=likely):
    """What vLLM gives for a response; one that ends with CUT was cut off there."""
    text, is_cut = response.removesuffix(CUT), response.endswith(CUT)
    tokens = [*map(ord, text), *([] if is_cut else [EOS])]
    logprobs = None if sampling_params.logprobs is None else [likely(token) for token in tokens]
    reason = "length" if is_cut else "stop"
    made = SimpleNamespace(token_ids=tokens, finish_reason=reason, logprobs=logprobs, text=text)
    return SimpleNamespace(outputs=[made])


def asked(actor, prompt, label, n, parameters=None, max_length=64):
    """The host's own drawing of a prompt's rollouts, to be awaited."""
    return actor.generate_responses(
        prompt=prompt,
        label=label,
        sampling_params=parameters or SamplingParams(max_tokens=40),
        max_length=max_length,
        hf_tokenizer=Letters(),
        num_samples=n,
    )


class ScriptedActor(RolloutRayActor.__ray_metadata__.modified_class):
    """The host's rollout actor, over an engine that writes the script's responses to each prompt in turn."""

    def __init__(self, script):
        self.executor = AgentExecutor()
        self.script = {prompt: iter(responses) for prompt, responses in script.items()}

    async def generate(self, prompt_token_ids, sampling_params, multi_modal_data=None):
        text = "".join(map(chr, prompt_token_ids))
        prompt = next(prompt for prompt in self.script if text.startswith(prompt))
        begun, response = text.removeprefix(prompt), next(self.script[prompt])
        assert response.startswith(begun), f"the script writes {response!r}, and {begun!r} is written already"
        return written(response.removeprefix(begun), sampling_params)


def evaluated(prompt, response, gold):
    """The reward of one rollout of an evaluation prompt."""
    actor = ScriptedActor.__new__(ScriptedActor)
    actor.script = {prompt: iter([response])}
    executor = AgentExecutor.__new__(AgentExecutor)
    executor._settings, executor._agent = HookConfig(method=parse_settings({"name": "ttrl"})), None
    SingleTurnAgentExecutor.__init__(executor)
    call = Call(prompt, gold, SamplingParams(max_tokens=4096), 8192, Letters(), actor, None)
    return asyncio.run(executor._evaluate(call))["scores"]


class Handle:
    """A handle of that actor: calls run at once, and what goes in and out is pickled as on the way through Ray."""

    def __init__(self, actor):
        self.get_num_unfinished_requests = SimpleNamespace(remote=lambda: 0)
        self.generate_responses = SimpleNamespace(remote=self._generate_responses)
        self.states = []
        for state in ("wake_up", "sleep"):
            setattr(self, state, SimpleNamespace(remote=partial(self.states.append, state)))
        self._actor = actor

    def _generate_responses(self, **arguments):
        return asyncio.run(self._draw(arguments))

    async def _draw(self, arguments):
        drawn = await self._actor.generate_responses(**pickle.loads(pickle.dumps(arguments)))
        self.states.append("scored")
        return pickle.loads(pickle.dumps(drawn))


class Models:
    """A RayActorGroup whose models know `log_prob` alone, and keep what they are sent to train on."""

    def __init__(self):
        self.trained_on = []

    def async_run_method_batch(self, method_name, **batch):
        if method_name == "append":
            self.trained_on += batch["experience"]
            return []
        assert method_name == "forward"
        pairs = zip(batch["sequences"], batch["action_mask"], strict=True)
        return [[self._log_probs(sequences) * mask for sequences, mask in pairs]]

    def async_run_method(self, method_name, **_):
        return [{"policy_loss": 0.5, "kl": 0.25, "restrain/trained_tokens": 30.0}] if method_name == "fit" else [None]

    @staticmethod
    def _log_probs(sequences):
        return torch.tensor([[log_prob(token) for token in row[1:].tolist()] for row in sequences])


class Stored:
    """The reference to what was put into Ray."""

    def __init__(self, value):
        self.value = value

    def __await__(self):
        yield from ()
        return self.value


def ray_at_once(monkeypatch):
    """Ray's references are the results themselves, but for what is put there."""
    import ray

    monkeypatch.setattr(ray, "put", Stored)
    monkeypatch.setattr(ray, "get", lambda refs: refs.value if isinstance(refs, Stored) else refs)
    monkeypatch.setattr(ray, "wait", lambda refs, num_returns, timeout: (refs[:num_returns], refs[num_returns:]))


def host_arguments(prompts, n, **flags):
    """What the host's parser makes of these flags; micro-batches of three, so that they do not end where groups do."""
    flags = {
        "algo.advantage.estimator": "group_norm",
        "algo.kl.use_loss": True,
        "rollout.batch_size": prompts,
        "rollout.n_samples_per_prompt": n,
        "rollout.micro_batch_size": 3,
        **flags,
    }
    return hierarchize(parse(to_arguments(flags)))


def drawn_by_the_host(script, labels, arguments):
    """One step's rollouts from the host's own SamplesGenerator."""
    dataset = SimpleNamespace(prompts=list(script), labels=list(labels))
    if is_active():
        mark_training(dataset, build(config_here().method).reads_gold)
    pairs = zip(dataset.prompts, dataset.labels, strict=True)
    rows = [("train", [prompt], [label], [None]) for prompt, label in pairs]
    strategy = SimpleNamespace(args=arguments)
    generator = SamplesGenerator(strategy, rows, None, Letters(), [Handle(ScriptedActor(script))])
    samples, _, consumed, _ = generator.generate_samples(**LENGTHS)
    assert consumed == len(script)
    return samples


def maker_of(arguments, models=None):
    """The host's own RemoteExperienceMaker."""
    models = models or Models()
    strategy = SimpleNamespace(args=arguments)
    return RemoteExperienceMaker(models, None, None, models, FixedKLController(0.001), strategy, Letters())


def column(experiences, name):
    """One number per rollout of the step, in order."""
    return torch.cat([experience.info[name] for experience in experiences]).tolist()
