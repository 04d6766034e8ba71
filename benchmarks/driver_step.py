"""The trainer's own time in a whole step: OpenRLHF's as it is and with the hook, in turn, over the same rollouts.

The host's own loop takes each step: prompts go through a real Ray to one rollout actor that answers without a model,
become experience in micro-batches of 8, are sent to a policy that answers at once, and the step is logged; with the
hook, its numbers and some of its rollouts are also written. The tokenizer is a byte-level BPE of Qwen's size (or
Llama's, by --tokens 128000), made here. CPU time is that of one process, in all its threads.
"""

import argparse
import itertools
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# The host sets this for every worker (openrlhf/cli/train_ppo_ray.py); with it Ray copies a tensor's bytes instead of
# pickling the tensor. Ray reads it as it is imported.
os.environ["RAY_ENABLE_ZERO_COPY_TORCH_TENSORS"] = "1"

import ray
from rich.console import Console

# As Ray sets it for the trainer, an actor of one CPU; read as torch is imported.
os.environ["OMP_NUM_THREADS"] = "1"

from restrain_openrlhf.machine.devices import detect

detect().install()

MICRO_BATCH, PROMPT_TOKENS = 8, 150
# As many as Qwen's tokenizer has merged and special tokens.
QWEN_TOKENS = 151_643
METHOD = {"name": "restrain", "prompt_weight": "online"}


def byte_level_bpe(folder: Path, tokens: int) -> Path:
    """A tokenizer of so many tokens, each longer one merged from two others, saved as transformers reads it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {letter: place for place, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    letters, merges = list(vocabulary), []
    for length in itertools.count(1):
        before = [token for token in vocabulary if len(token) == length]
        for left, right in itertools.product(before, letters):
            if len(vocabulary) < tokens and left + right not in vocabulary:
                vocabulary[left + right] = len(vocabulary)
                merges.append((left, right))
        if len(vocabulary) == tokens:
            break
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    whole = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|endoftext|>", pad_token="<|endoftext|>")
    whole.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    whole.save_pretrained(folder)
    return folder


@ray.remote
class Rollouts:
    """Answers as the host's rollout actor does (trainer/ray/vllm_engine.py), without drawing: what a group costs it."""

    def __init__(self, tokens: int) -> None:
        from restrain_openrlhf.hook.install import instrument
        from restrain_openrlhf.method import build, parse_settings
        from restrain_openrlhf.scoring import GroupScorer

        self.tokens, self.scorer = tokens, GroupScorer(build(parse_settings(METHOD)))
        instrument.install()

    async def get_num_unfinished_requests(self) -> int:
        return 0

    async def generate_responses(self, prompt: str, hf_tokenizer: Any, num_samples: int, **_: Any) -> list[Any]:
        """A group of responses of `tokens` tokens each; with the hook scored, and as its agent sends it."""
        from restrain_openrlhf.hook.rollout.samples import tokenizer_here

        tokenizer = await tokenizer_here(hf_tokenizer)
        ids = (tokenizer(prompt, add_special_tokens=False)["input_ids"] * PROMPT_TOKENS)[:PROMPT_TOKENS]
        rollouts = [self._rollout(prompt, ids) for _ in range(num_samples)]
        return rollouts if tokenizer is hf_tokenizer else self._scored(prompt, rollouts)

    def _scored(self, prompt: str, rollouts: list[dict[str, Any]]) -> list[Any]:
        from restrain_openrlhf.hook.agent import Drawn, as_arrays, extra_logs
        from restrain_openrlhf.hook.rollout.group_columns import ScoredGroup, labels
        from restrain_openrlhf.hook.rollout.training_data import TrainingRow
        from restrain_openrlhf.scoring import score_whole_group
        from restrain_openrlhf.scoring.wire import GroupRequest, GroupResponse

        texts = [f"{'so ' * self.tokens}\\boxed{{{place % 5}}}" for place in range(len(rollouts))]
        responses = tuple(GroupResponse(text=text, finished=True) for text in texts)
        group = GroupRequest(prompt=prompt, responses=responses)
        score = score_whole_group(self.scorer, group)
        logs = extra_logs(group, score, TrainingRow(), Drawn(rollouts, responses, len(rollouts) * self.tokens))
        carried = labels(ScoredGroup(group, score, len(rollouts) * self.tokens), len(rollouts), carry=True)
        log_probs = [0.0] * PROMPT_TOKENS + [-0.5] * self.tokens
        return [
            {**as_arrays({**rollout, "rollout_log_probs": log_probs}), "extra_logs": row, "label": label}
            for rollout, row, label in zip(rollouts, logs, carried, strict=True)
        ]

    def _rollout(self, prompt: str, ids: list[int]) -> dict[str, Any]:
        tokens = [*ids, *((place * 7919) % 100_000 for place in range(self.tokens))]
        return {
            "prompt": prompt,
            "label": "",
            "observation_tokens": tokens,
            "action_ranges": [(len(ids), len(tokens))],
            "rollout_log_probs": None,
            "truncated": False,
            "reward": 0.5,
            "scores": 0.5,
            "extra_logs": {},
        }

    def cpu_seconds(self) -> float:
        """CPU time of this process so far, in seconds."""
        return time.process_time()


@ray.remote
class Policy:
    """The policy, or its reference, without a model: it is sent what the host sends, and answers at once."""

    def execute_batch(self, method_name: str, all_data: dict[str, Any], start_idx: int, end_idx: int) -> list[Any]:
        """As the host's (trainer/ray/launcher.py)."""
        import torch

        if method_name == "append":
            return []
        return [torch.full(mask.shape, -0.5) for mask in all_data["action_mask"][start_idx:end_idx]]

    def fit(self, kl_ctl: float) -> dict[str, float]:
        """The numbers of a step."""
        return {"policy_loss": 0.5, "kl": 0.1}

    def broadcast_to_vllm(self) -> None:
        """Send nothing."""


def group_of(actor: Any) -> Any:
    """The host's group of one actor."""
    from openrlhf.trainer.ray.launcher import RayActorGroup

    group: Any = RayActorGroup.__new__(RayActorGroup)
    group._actor_handlers, group.duplicate_actors = [actor], 1
    return group


class Prompts(list[Any]):
    """The data loader of one step's prompts, as far as the host's loop asks it."""

    def state_dict(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class Cost:
    """Of one step, per prompt: CPU milliseconds of the trainer's process, of the rollout actor's, and wall time."""

    trainer: float
    actor: float
    wall: float


def step(tokenizer: Any, engine: Any, policy: Any, reference: Any, arguments: Any, prompts: int) -> Cost:
    """One step of the host's trainer as it is now, patched or not, but for its constructor, which loads models."""
    from openrlhf.trainer.ppo_trainer import BasePPOTrainer, PPOTrainer
    from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator

    strategy = SimpleNamespace(args=arguments)
    rows = Prompts(("", [f"Problem {place}: what is it?"], [""], [None]) for place in range(prompts))
    host = PPOTrainer.__ray_metadata__.modified_class
    trainer: Any = host.__new__(host)
    BasePPOTrainer.__init__(trainer, strategy, policy, None, None, reference, None, tokenizer)
    trainer.prompts_dataloader, trainer.eval_dataloader = rows, None
    trainer.generate_kwargs = {"max_new_tokens": 2048, "max_len": 4096}
    trainer.samples_generator = SamplesGenerator(strategy, rows, None, tokenizer, [engine])
    actor, cpu, wall = ray.get(engine.cpu_seconds.remote()), time.process_time(), time.perf_counter()
    trainer.fit()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    actor = ray.get(engine.cpu_seconds.remote()) - actor
    return Cost(*(1000 * seconds / prompts for seconds in (cpu, actor, wall)))


def in_turn(run: Callable[[], Cost], repeats: int, metrics: Path) -> Iterator[tuple[Cost, Cost]]:
    """Stock and hooked runs in pairs. All stock ones come first; the first of each kind warms up and is left out."""
    from restrain_openrlhf.config.yaml_file import HookConfig
    from restrain_openrlhf.hook.install import instrument
    from restrain_openrlhf.hook.install.environment import to_environment
    from restrain_openrlhf.method import parse_settings

    os.environ.update(to_environment(HookConfig(method=parse_settings(METHOD), metrics=metrics)))
    stock = [run() for _ in range(repeats + 1)]
    instrument.install()
    hooked = [run() for _ in range(repeats + 1)]
    yield from zip(stock[1:], hooked[1:], strict=True)


def main() -> None:
    """Measure and print."""
    from openrlhf.utils.config import hierarchize
    from openrlhf.utils.utils import get_tokenizer

    from restrain_openrlhf.config.host_flags import parse, to_arguments

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--n", type=int, default=16)
    parser.add_argument("--response", type=int, default=1200, help="tokens of a response")
    parser.add_argument("--tokens", type=int, default=QWEN_TOKENS, help="of the tokenizer")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    flags = {
        "algo.advantage.estimator": "group_norm",
        "algo.kl.use_loss": True,
        "algo.kl.init_coef": 0.001,
        "rollout.batch_size": options.prompts,
        "rollout.n_samples_per_prompt": options.n,
        "rollout.micro_batch_size": MICRO_BATCH,
        "ckpt.save_steps": 1000,
        "eval.steps": 1000,
    }
    arguments = hierarchize(parse(to_arguments(flags)))
    logging.disable(logging.INFO)
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    engine = Rollouts.remote(options.response)
    with tempfile.TemporaryDirectory() as name:
        tokenizer = get_tokenizer(str(byte_level_bpe(Path(name), options.tokens)), None, "left")
        size = (Path(name) / "tokenizer.json").stat().st_size / 1e6
        policy, reference = group_of(Policy.remote()), group_of(Policy.remote())
        run = partial(step, tokenizer, engine, policy, reference, arguments, options.prompts)
        pairs = list(in_turn(run, options.repeats, Path(name) / "metrics.jsonl"))
    console = Console()
    console.print(
        f"{options.prompts} prompts of {options.n} rollouts of {options.response} tokens, a tokenizer of "
        f"{options.tokens} tokens ({size:.1f} MB); medians of {options.repeats} pairs, in milliseconds a prompt"
    )
    for part, said in (("trainer", "CPU of the trainer"), ("actor", "CPU of a rollout actor"), ("wall", "wall time")):
        stock, hooked = ([getattr(cost, part) for cost in side] for side in zip(*pairs, strict=True))
        ratios = [two / one for one, two in zip(stock, hooked, strict=True)]
        console.print(
            f"{said}: stock {statistics.median(stock):.1f}, hooked {statistics.median(hooked):.1f}, ratio "
            f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}); slower in "
            f"{sum(ratio > 1 for ratio in ratios)} of {len(ratios)} pairs"
        )


if __name__ == "__main__":
    main()
