"""Checks vLLM as the methods use it: seeds, the likeliest tokens, a tree, stop tokens, and sleep.

As a program, this module starts an engine with the demo's model in the way the host does (trainer/ray/vllm_engine.py),
and prints each result as a line of JSON.
"""

import asyncio
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from restrain_openrlhf.commands.gpu_check.outcome import CheckOutcome, judged, measured, skipped
from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION
from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.hook.rollout.rollout_engine import Sampler
from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.method.rollout_plans import Chain, EntropyTrees

# ETTRL asks for the twenty most likely tokens at each position (method/methods/ettrl.py).
TOP_K = 20
SEEDS = tuple(range(100, 108))
TREE = EntropyTrees(trees=1, forks=2, branches=2, top_k=TOP_K)
LENGTH, MAX_LEN = 14, 32
# The share of the GPU's memory, which is small because the model is.
MEMORY_SHARE = 0.3
# The addition has three carries, of which the demo's model is unsure. Without carries, all seeds would give one
# response.
PROMPT = "789+456="
# The limit of the relative gap of log-probabilities (as in small_run.py). Rounding in bf16 gives 0.01 to 0.02.
GAP_LIMIT = 0.05
FEWEST_RESPONSES = 2
LEAST_FREED = 0.5

# The host's rollout actor (RolloutRayActor), with its generate, sleep and wake_up.
Engine = Any
# Computes the log-probabilities, in nats, of a response's tokens after a prompt, by the policy's forward pass.
Policy = Callable[[Sequence[int], Sequence[int]], list[float]]


@dataclass(frozen=True)
class Question:
    """The tokens of a prompt, and a function that makes parameters of a request (vLLM's SamplingParams)."""

    prompt: list[int]
    parameters: Callable[..., Any]
    eos: int


def check_sampling(out: Path, _config: RunConfig | None = None) -> list[CheckOutcome]:
    """Start one engine in a process, and check everything with it."""
    lines = measured(__name__, [ADDITION.model, PROMPT], out / "sampling" / "engine.log")
    return [CheckOutcome(**line) for line in lines]


async def examine(engine: Engine, question: Question, policy: Policy) -> list[CheckOutcome]:
    """All checks except for sleep."""
    return [
        await ask_seeds(engine, question),
        await ask_ranks(engine, question, policy),
        await ask_tree(engine, question, policy),
        await ask_stops(engine, question),
    ]


async def _answer(engine: Engine, question: Question, **parameters: Any) -> Any:
    return (await engine.generate(question.prompt, question.parameters(**parameters))).outputs[0]


async def _tokens(engine: Engine, question: Question, **parameters: Any) -> tuple[int, ...]:
    return tuple((await _answer(engine, question, **parameters)).token_ids)


async def ask_seeds(engine: Engine, question: Question) -> CheckOutcome:
    """Draw with each seed twice alone and twice in a batch. Only a request alone must be repeated exactly.

    `seeded_rollouts` does not promise more on one machine. Where kernels are not batch-invariant, a resumed run has
    other rollouts of the same distribution.
    """
    alone, again = [[await _tokens(engine, question, seed=seed) for seed in SEEDS] for _ in range(2)]
    batches = [await asyncio.gather(*[_tokens(engine, question, seed=seed) for seed in SEEDS]) for _ in range(2)]
    same, in_a_batch, batch = _share_equal(alone, again), _share_equal(alone, batches[0]), _share_equal(*batches)
    found = (
        f"alone {same:.0%} the same again (required); in a batch {in_a_batch:.0%}, the batch again {batch:.0%} "
        f"(reported); {len(set(alone))} responses by {len(SEEDS)} seeds"
    )
    holds = same == 1 and len(set(alone)) >= FEWEST_RESPONSES
    return judged("vLLM: seeds", holds, found, alone=same, in_a_batch=in_a_batch, batch=batch)


def _share_equal(one: Sequence[object], other: Sequence[object]) -> float:
    return sum(a == b for a, b in zip(one, other, strict=True)) / len(one)


async def ask_ranks(engine: Engine, question: Question, policy: Policy) -> CheckOutcome:
    """Check the ranks of the likeliest tokens in some responses, and compare log-probabilities with the policy's."""
    completions = [await _answer(engine, question, seed=seed, logprobs=TOP_K) for seed in SEEDS]
    bad = [not _in_order(entries) for each in completions for entries in each.logprobs]
    gap = _gap(question, [_chain(each) for each in completions], policy)
    found = (
        f"ranks 1 to {TOP_K} at {bad.count(False)} of {len(bad)} tokens; log-probabilities {gap:.1%} from the policy's "
        f"(limit {GAP_LIMIT:.0%})"
    )
    return judged(f"vLLM: top-{TOP_K} ranks", not any(bad) and gap < GAP_LIMIT, found, bad=sum(bad), gap=gap)


def _chain(completion: Any) -> Chain:
    drawn = zip(completion.token_ids, completion.logprobs, strict=True)
    log_probs = tuple(entries[token].logprob for token, entries in drawn)
    return Chain(tuple(completion.token_ids), completion.finish_reason, log_probs)


def _in_order(entries: Any) -> bool:
    """Whether a position has each rank from 1 to k once, in the order of probabilities, whose sum is at most 1."""
    ranked = sorted((entry.rank, entry.logprob) for entry in entries.values() if entry.rank <= TOP_K)
    values = [value for _, value in ranked]
    return (
        [rank for rank, _ in ranked] == list(range(1, TOP_K + 1))
        and values == sorted(values, reverse=True)
        and sum(map(math.exp, values)) < 1.01  # noqa: PLR2004 - rounding
    )


def _gap(question: Question, chains: Sequence[Chain], policy: Policy) -> float:
    """The mean of |log p_vLLM − log π| over all tokens, relative to the mean of |log p_vLLM|; NaN without tokens."""
    pairs = [
        pair for chain in chains for pair in zip(chain.log_probs, policy(question.prompt, chain.tokens), strict=True)
    ]
    size = sum(abs(a) for a, _ in pairs)
    return sum(abs(a - b) for a, b in pairs) / size if size else math.nan


async def ask_tree(engine: Engine, question: Question, policy: Policy) -> CheckOutcome:
    """Draw a tree by the code that draws those of ETTRL, and check it."""
    sampler = Sampler(engine, question.prompt, question.parameters(), None, TOP_K, seed=7)
    leaves = await TREE.draw(sampler)
    broken = sum(not _is_whole(leaf, question) for leaf in leaves)
    return judge_tree(len(leaves), broken, _gap(question, leaves, policy))


def _is_whole(leaf: Chain, question: Question) -> bool:
    """Whether a leaf, including the tokens of its chain, ends like a response: with the end token, or at the limit."""
    ended = leaf.tokens[-1:] == (question.eos,) and leaf.finish_reason == "stop"
    cut = len(leaf.tokens) == LENGTH and leaf.is_truncated
    return len(leaf.tokens) <= LENGTH and (ended or cut)


def judge_tree(leaves: int, broken: int, gap: float) -> CheckOutcome:
    """Judge a tree, of whose leaves `broken` do not end like a response.

    The gap shows a leaf that was not continued from its chain, because its log-probabilities differ from the policy's.
    """
    found = f"{leaves} leaves, {broken} that do not end as a response does; log-probabilities {gap:.1%} from "
    found += "the policy's"
    holds = leaves == TREE.voters and broken == 0 and gap < GAP_LIMIT
    return judged("vLLM: one tree", holds, found, leaves=leaves, gap=gap)


async def ask_stops(engine: Engine, question: Question) -> CheckOutcome:
    """End a greedy response by a token in its middle, by a limit of two tokens, and by itself.

    Each must be reported.
    """
    greedy = await _answer(engine, question, temperature=0.0)
    written = list(greedy.token_ids)
    middle = written[len(written) // 2]
    stopped = await _answer(engine, question, temperature=0.0, stop_token_ids=[middle])
    cut = await _answer(engine, question, temperature=0.0, max_tokens=2)
    to_middle = written[: written.index(middle) + 1]
    ends = {
        "a stop token": (list(stopped.token_ids), stopped.finish_reason) == (to_middle, "stop"),
        "the length limit": (list(cut.token_ids), cut.finish_reason) == (written[:2], "length"),
        "the end token": (written[-1], greedy.finish_reason) == (question.eos, "stop"),
    }
    missed = [name for name, holds in ends.items() if not holds]
    found = f"does not end at {', '.join(missed)}" if missed else f"ends at {', '.join(ends)}, and says so"
    return judged("vLLM: stop tokens", not missed, found)


async def ask_sleep(engine: Engine, question: Question, used: Callable[[], int] | None) -> CheckOutcome:
    """Measure how much memory the engine frees when it sleeps, and whether it gives the same response afterwards."""
    name = "vLLM: sleep and wake"
    if used is None:
        return skipped(name, "vLLM's CPU build has no sleep mode")
    awake, before = used(), await _tokens(engine, question, seed=1)
    await engine.sleep()
    freed = 1 - used() / max(awake, 1)
    await engine.wake_up()
    same = await _tokens(engine, question, seed=1) == before
    response = "the same" if same else "another response"
    found = f"{freed:.0%} of the GPU's used memory given back (at least {LEAST_FREED:.0%}); {response} after waking"
    return judged(name, freed >= LEAST_FREED and same, found, freed=freed)


def own_engine(model: str) -> Engine:
    """An engine with the arguments of the host's, except for those of weight sync."""
    import vllm  # noqa: PLC0415 - after the device is prepared
    from openrlhf.trainer.ray.vllm_engine import RolloutRayActor  # noqa: PLC0415

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
        enable_sleep_mode=detect().has_gpus,
        enable_prefix_caching=False,
        **detect().engine_options,
    )
    actor.llm = vllm.AsyncLLMEngine.from_engine_args(arguments)
    actor._mm_pad_token_ids = None
    return actor


def own_policy(model: str) -> Policy:
    """The policy by transformers, in bf16 like the host's, on the CPU because it is small."""
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
    return Question(prompt, parameters, tokenizer.eos_token_id)


def _used_gpu_bytes() -> int:
    import torch  # noqa: PLC0415

    free, total = torch.cuda.mem_get_info()
    return int(total - free)


async def _everything(model: str, text: str) -> list[CheckOutcome]:
    question, engine = _question(model, text), own_engine(model)
    try:
        outcomes = await examine(engine, question, own_policy(model))
        return [*outcomes, await ask_sleep(engine, question, _used_gpu_bytes if detect().has_gpus else None)]
    finally:
        engine.llm.shutdown()


def main(model: str, prompt: str) -> None:
    """Check an engine with this model on this prompt, and print the results."""
    detect().install()
    outcomes = asyncio.run(_everything(model, prompt))
    sys.stdout.write("\n" + "".join(dump(asdict(outcome)) for outcome in outcomes))


if __name__ == "__main__":
    main(*sys.argv[1:])
