"""Rollouts of the frozen model from vLLM, on a GPU or on vLLM's CPU build, with a seed for each prompt."""

import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field

from restrain_openrlhf.errors import DataError
from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.reference.prompts import Prompt, begins_with_mark

# An error names at most so many prompts that are too long, because a whole training set would fill the terminal.
MOST_NAMED = 200
# The share of a GPU's memory for weights and cache.
MEMORY_SHARE = 0.9


class Sampling(BaseModel, frozen=True, extra="forbid", populate_by_name=True):
    """How rollouts are drawn; lengths in tokens. An alias is OpenRLHF's flag of the same meaning."""

    n: int = Field(16, alias="rollout.n_samples_per_prompt", ge=1, description="Rollouts per prompt.")
    temperature: float = Field(1.0, alias="rollout.temperature", ge=0, le=2, description="Sampling temperature.")
    top_p: float = Field(1.0, alias="rollout.top_p", gt=0, le=1, description="Top-p of nucleus sampling.")
    max_new_tokens: int = Field(4096, alias="rollout.max_new_tokens", ge=1, description="Longest rollout, in tokens.")
    max_len: int = Field(8192, alias="data.max_len", ge=2, description="Longest prompt with rollout, in tokens.")
    seed: int = Field(42, ge=0, lt=2**32, description="The same seed gives the same rollouts, sharded or not.")
    tensor_parallel_size: int = Field(1, alias="vllm.tensor_parallel_size", ge=1, description="GPUs per vLLM engine.")
    # None leaves both to vLLM, which takes 256 rollouts for offline sampling, and 1,024 on an H100.
    max_num_seqs: int | None = Field(None, ge=1, description="Concurrent rollouts per engine.")
    max_num_batched_tokens: int | None = Field(None, ge=1, description="Tokens per step of an engine.")


@dataclass(frozen=True)
class Marks:
    """What belongs to a template besides its text: the tokenizer's own marks, and what ends a response."""

    add_special_tokens: bool = False
    stops: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()


# How training draws: the host adds no special tokens, and a response ends with the model's own end token.
TRAINING_MARKS = Marks()


@dataclass(frozen=True)
class Rollout:
    """One response: its text, its number of tokens, and whether it hit the length limit."""

    text: str
    tokens: int
    truncated: bool


class RolloutEngine:
    """A vLLM engine for one model. Loading takes long, so use one engine for all prompts."""

    def __init__(self, model: str, sampling: Sampling, tokenizer: Any, marks: Marks = TRAINING_MARKS) -> None:
        device = detect()
        device.install()
        from vllm import LLM  # noqa: PLC0415 - must come after the device is prepared

        self._sampling, self._tokenizer, self._marks = sampling, tokenizer, marks
        self._llm = LLM(
            model,
            dtype="bfloat16",
            seed=sampling.seed,
            max_model_len=sampling.max_len,
            tensor_parallel_size=sampling.tensor_parallel_size,
            gpu_memory_utilization=MEMORY_SHARE,
            max_num_seqs=sampling.max_num_seqs,
            max_num_batched_tokens=sampling.max_num_batched_tokens,
            trust_remote_code=True,
            **device.engine_options,
        )

    def rollouts(self, prompts: Sequence[Prompt]) -> list[list[Rollout]]:
        tokens = [prompt_tokens(prompt, self._tokenizer, self._marks) for prompt in prompts]
        requests = [{"prompt_token_ids": ids} for ids in tokens]
        outputs = self._llm.generate(requests, [self._parameters(prompt) for prompt in prompts], use_tqdm=False)
        return [
            [Rollout(each.text, len(each.token_ids), each.finish_reason == "length") for each in output.outputs]
            for output in outputs
        ]

    def _parameters(self, prompt: Prompt) -> Any:
        from vllm import SamplingParams  # noqa: PLC0415 - see __init__

        return SamplingParams(
            n=self._sampling.n,
            temperature=self._sampling.temperature,
            top_p=self._sampling.top_p,
            max_tokens=self._sampling.max_new_tokens,
            min_tokens=1,
            stop=list(self._marks.stops),
            stop_token_ids=list(self._marks.stop_tokens),
            seed=prompt_seed(self._sampling.seed, prompt),
        )


def prompt_tokens(prompt: Prompt, tokenizer: Any, marks: Marks = TRAINING_MARKS) -> list[int]:
    """Token ids as the host makes them (openrlhf/utils/agent.py), with `marks` possibly with the tokenizer's own marks.

    A text that already begins with the tokenizer's beginning mark does not get a second one.
    """
    special = marks.add_special_tokens and not begins_with_mark(prompt.text, tokenizer)
    ids: list[int] = tokenizer(text=prompt.text, add_special_tokens=special)["input_ids"]
    return ids


def refuse_long_prompts(prompts: Sequence[Prompt], tokenizer: Any, sampling: Sampling) -> None:
    """Raises DataError listing the prompts that the host would cut to leave room for a response."""
    room = sampling.max_len - sampling.max_new_tokens
    lengths = array("L", (len(prompt_tokens(prompt, tokenizer)) for prompt in prompts))
    pairs = zip(prompts, lengths, strict=True)
    long = [f"{prompt.where} (id {prompt.id!r}): {length}" for prompt, length in pairs if length > room]
    if long:
        more = f"; and {len(long) - MOST_NAMED} more" if len(long) > MOST_NAMED else ""
        raise DataError(
            f"{len(long)} of {len(prompts)} prompts are too long: max_len {sampling.max_len} with "
            f"{sampling.max_new_tokens} new tokens leaves {room} for the prompt. {'; '.join(long[:MOST_NAMED])}{more}. "
            f"Raise max_len (data.max_len) to {max(lengths) + sampling.max_new_tokens} or more, lower max_new_tokens "
            "(rollout.max_new_tokens), or remove these prompts."
        )


def prompt_seed(seed: int, prompt: Prompt) -> int:
    """The seed of a prompt, so that shards and resumed passes draw the same rollouts as one whole pass."""
    digest = hashlib.sha256(f"{seed}:{prompt.text}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
