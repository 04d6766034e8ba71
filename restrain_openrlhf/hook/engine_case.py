"""What this project asks of a vLLM engine, asked one thing after the other: seeds, ranks, trees, stops, sleep.

Run as a program, it starts an engine as the host starts its own (trainer/ray/vllm_engine.py) over the demo's model and
prints what it saw as one JSON line.
"""

import argparse
import asyncio
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Protocol

from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.hook.devices import detect
from restrain_openrlhf.hook.rollout_engine import Sampler
from restrain_openrlhf.rollouts import Chain, EntropyTrees

# As ETTRL asks (method/methods): the twenty most likely tokens of each position.
TOP_K = 20
SEEDS = tuple(range(100, 108))
TREE = EntropyTrees(trees=1, forks=2, branches=2, top_k=TOP_K)
LENGTH = 14
MAX_LEN = 32
# Engines of training get a share of the GPU; this one is alone, and its model is small.
MEMORY_SHARE = 0.3

# Log-probabilities, in nats, of a response's tokens after a prompt, by the policy's own forward pass.
Policy = Callable[[Sequence[int], Sequence[int]], list[float]]


class Engine(Protocol):
    """What the host's rollout actor offers (RolloutRayActor)."""

    async def generate(
        self, prompt_token_ids: list[int], sampling_params: Any, multi_modal_data: Any = None
    ) -> Any: ...

    async def sleep(self, level: int = 1) -> None: ...

    async def wake_up(self, tags: Any = None) -> None: ...


@dataclass(frozen=True)
class EngineSeen:
    """Shares are of requests; gaps are means of |log p_vLLM − log π| a token, in nats, and relative to |log p|.

    `differing_seeds` is the number of different responses that as many seeds gave. `bad_ranks` are positions without
    k tokens in order of probability. `freed` is the share of the engine's memory that sleep gave back, None where it
    cannot sleep; `same_after_wake` whether a seeded response is the same afterwards.
    """

    repeated_alone: float
    repeated_in_a_batch: float
    repeated_batch: float
    differing_seeds: int
    seeds: int
    positions: int
    bad_ranks: int
    logprob_gap: float
    logprob_gap_relative: float
    leaves: int
    leaves_apart_from_root: int
    tree_gap_relative: float
    ends_at_stop: bool
    ends_at_limit: bool
    ends_at_eos: bool
    freed: float | None = None
    same_after_wake: bool | None = None


@dataclass(frozen=True)
class Question:
    """A prompt's tokens, and the parameters that a request begins with (vLLM's SamplingParams)."""

    prompt: list[int]
    parameters: Callable[..., Any]
    special_tokens: frozenset[int]
    eos: int


async def examine(engine: Engine, question: Question, policy: Policy) -> EngineSeen:
    """Ask everything but sleep."""
    return EngineSeen(
        **await _seeds(engine, question),
        **await _ranks(engine, question, policy),
        **await _tree(engine, question, policy),
        **await _stops(engine, question),
    )


async def _tokens(engine: Engine, question: Question, **parameters: Any) -> tuple[int, ...]:
    output = await engine.generate(question.prompt, question.parameters(**parameters))
    return tuple(output.outputs[0].token_ids)


async def _seeds(engine: Engine, question: Question) -> dict[str, Any]:
    alone = [await _tokens(engine, question, seed=seed) for seed in SEEDS]
    again = [await _tokens(engine, question, seed=seed) for seed in SEEDS]
    batches = [await asyncio.gather(*[_tokens(engine, question, seed=seed) for seed in SEEDS]) for _ in range(2)]
    return {
        "repeated_alone": _share_equal(alone, again),
        "repeated_in_a_batch": _share_equal(alone, batches[0]),
        "repeated_batch": _share_equal(*batches),
        "differing_seeds": len(set(alone)),
        "seeds": len(SEEDS),
    }


def _share_equal(one: Sequence[object], other: Sequence[object]) -> float:
    return sum(a == b for a, b in zip(one, other, strict=True)) / len(one)


async def _ranks(engine: Engine, question: Question, policy: Policy) -> dict[str, Any]:
    """Through the same code that draws trees (hook/rollout_engine.py: Sampler)."""
    outputs = [await engine.generate(question.prompt, question.parameters(seed=seed, logprobs=TOP_K)) for seed in SEEDS]
    completions = [output.outputs[0] for output in outputs]
    bad = sum(not _in_order(entries) for each in completions for entries in each.logprobs)
    chains = [
        Chain(
            tuple(each.token_ids),
            each.finish_reason,
            tuple(entries[token].logprob for token, entries in zip(each.token_ids, each.logprobs, strict=True)),
        )
        for each in completions
    ]
    mean, relative = _gap(question, chains, policy)
    return {
        "positions": sum(len(chain.tokens) for chain in chains),
        "bad_ranks": bad,
        "logprob_gap": mean,
        "logprob_gap_relative": relative,
    }


def _in_order(entries: Any) -> bool:
    """Whether a position has the ranks 1 to k once each, in order of probability, of at most 1 in all."""
    ranked = sorted((entry.rank, entry.logprob) for entry in entries.values() if entry.rank <= TOP_K)
    falling = all(one[1] >= other[1] for one, other in pairwise(ranked))
    return (
        [rank for rank, _ in ranked] == list(range(1, TOP_K + 1))
        and falling
        and sum(math.exp(value) for _, value in ranked) < 1.01  # noqa: PLR2004 - rounding
    )


def _gap(question: Question, chains: Sequence[Chain], policy: Policy) -> tuple[float, float]:
    """Mean of |log p_vLLM − log π| over all tokens, and its size relative to the mean of |log p_vLLM|."""
    pairs = [
        pair for chain in chains for pair in zip(chain.log_probs, policy(question.prompt, chain.tokens), strict=True)
    ]
    total, size = sum(abs(a - b) for a, b in pairs), sum(abs(a) for a, _ in pairs)
    return total / len(pairs), total / size


async def _tree(engine: Engine, question: Question, policy: Policy) -> dict[str, Any]:
    sampler = Sampler(engine, question.prompt, question.parameters(), None, question.special_tokens, TOP_K, seed=7)
    leaves = await TREE.draw(sampler)
    root, *branches = leaves
    forks = [position for position in TREE.fork_positions(root) for _ in range(TREE.branches)]
    apart = sum(
        leaf.tokens[:fork] != root.tokens[:fork] or not leaf.tokens for leaf, fork in zip(branches, forks, strict=True)
    )
    return {
        "leaves": len(leaves),
        "leaves_apart_from_root": apart,
        "tree_gap_relative": _gap(question, leaves, policy)[1],
    }


async def _stops(engine: Engine, question: Question) -> dict[str, Any]:
    greedy = (await engine.generate(question.prompt, question.parameters(temperature=0.0))).outputs[0]
    written = tuple(greedy.token_ids)
    middle = written[len(written) // 2]
    stopped = (
        await engine.generate(question.prompt, question.parameters(temperature=0.0, stop_token_ids=[middle]))
    ).outputs[0]
    cut = (await engine.generate(question.prompt, question.parameters(temperature=0.0, max_tokens=2))).outputs[0]
    return {
        "ends_at_stop": tuple(stopped.token_ids) == written[: written.index(middle) + 1]
        and stopped.finish_reason == "stop",
        "ends_at_limit": tuple(cut.token_ids) == written[:2] and cut.finish_reason == "length",
        "ends_at_eos": written[-1] == question.eos and greedy.finish_reason == "stop",
    }


async def sleep_and_wake(engine: Engine, question: Question, used: Callable[[], int]) -> tuple[float, bool]:
    """The share of its memory that the engine gives back in sleep, and whether it writes the same afterwards."""
    empty_handed, before = used(), await _tokens(engine, question, seed=1)
    await engine.sleep()
    asleep = used()
    await engine.wake_up()
    return 1 - asleep / max(empty_handed, 1), await _tokens(engine, question, seed=1) == before


def own_engine(model: str) -> Engine:
    """An engine with the arguments of the host's, but for what its weights are synced by."""
    import vllm  # noqa: PLC0415 - after the device is prepared
    from openrlhf.trainer.ray.vllm_engine import RolloutRayActor  # noqa: PLC0415

    device = detect()
    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
    actor_class = RolloutRayActor.__ray_metadata__.modified_class
    actor: Any = actor_class.__new__(actor_class)
    arguments = vllm.AsyncEngineArgs(
        model=model,
        dtype="bfloat16",
        seed=42,
        max_model_len=MAX_LEN,
        max_logprobs=TOP_K,
        logprobs_mode="processed_logprobs",
        gpu_memory_utilization=MEMORY_SHARE,
        enable_sleep_mode=device.has_gpus,
        enable_prefix_caching=False,
        **device.engine_options,
    )
    actor.llm = vllm.AsyncLLMEngine.from_engine_args(arguments)
    actor._mm_pad_token_ids = None
    engine: Engine = actor
    return engine


def own_policy(model: str) -> Policy:
    """The model by transformers, in bf16 as the host's policy, on the CPU: it is small."""
    import torch  # noqa: PLC0415
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    models: Any = AutoModelForCausalLM
    loaded = models.from_pretrained(model, dtype=torch.bfloat16).eval()

    @torch.no_grad()
    def log_probs(prompt: Sequence[int], response: Sequence[int]) -> list[float]:
        if not response:
            return []
        ids = torch.tensor([[*prompt, *response]])
        found = loaded(ids).logits.float().log_softmax(-1)[:, :-1].gather(2, ids[:, 1:, None])[0, :, 0]
        values: list[float] = found[len(prompt) - 1 :].tolist()
        return values

    return log_probs


def _question(model: str, text: str) -> Question:
    from transformers import AutoTokenizer  # noqa: PLC0415
    from vllm import SamplingParams  # noqa: PLC0415

    tokenizer: Any = AutoTokenizer.from_pretrained(model)

    def parameters(**changed: Any) -> Any:
        return SamplingParams(**{"temperature": 1.0, "max_tokens": LENGTH, "min_tokens": 1, **changed})

    prompt = tokenizer(text, add_special_tokens=False)["input_ids"]
    return Question(prompt, parameters, frozenset(tokenizer.all_special_ids), tokenizer.eos_token_id)


def _used_gpu_bytes() -> int:
    import torch  # noqa: PLC0415

    free, total = torch.cuda.mem_get_info()
    return int(total - free)


async def _everything(model: str, text: str) -> EngineSeen:
    question, engine = _question(model, text), own_engine(model)
    try:
        seen = await examine(engine, question, own_policy(model))
        if detect().has_gpus:
            freed, same = await sleep_and_wake(engine, question, _used_gpu_bytes)
            seen = EngineSeen(**{**asdict(seen), "freed": freed, "same_after_wake": same})
        return seen
    finally:
        engine.llm.shutdown()  # type: ignore[attr-defined]


def main(words: Sequence[str]) -> None:
    """Print what was seen of the model that is named."""
    parser = argparse.ArgumentParser(description="What this project asks of a vLLM engine.")
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt", required=True)
    chosen = parser.parse_args(words)
    detect().install()
    sys.stdout.write("\n" + dump(asdict(asyncio.run(_everything(chosen.model, chosen.prompt)))))


if __name__ == "__main__":
    main(sys.argv[1:])
