"""The host's rollouts as groups of one prompt each, checked by identity rather than trusted by position."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from restrain_openrlhf.answers import extract
from restrain_openrlhf.errors import GroupError
from restrain_openrlhf.hook.carried import entropies_of, votes_beside


class Tokenizer(Protocol):
    """What is used here of a Hugging Face tokenizer."""

    def batch_decode(self, sequences: list[list[int]], skip_special_tokens: bool) -> list[str]: ...


@dataclass(frozen=True)
class RolloutGroup:
    """One prompt's n rollouts: `samples` are the host's Experience objects, one rollout each (experience.py).

    `answers` and `truncated` have one entry per voter: the samples, then the rollouts that only voted. `entropies` are
    None where the rollouts were drawn without.
    """

    prompt: str
    samples: tuple[Any, ...]
    answers: tuple[str | None, ...]
    truncated: tuple[bool, ...]
    gold: str | None
    entropies: tuple[float, ...] | None


def group_rollouts(samples: Sequence[Any], n: int, tokenizer: Tokenizer) -> list[RolloutGroup]:
    """The rollouts of one step, n at a time, with their final answers; a truncated rollout's answer is missing.

    Raises GroupError when the count is no multiple of n or when n neighbours do not share one prompt.
    """
    if not samples or len(samples) % n:
        raise GroupError(
            f"{len(samples)} rollouts arrived, which is no multiple of rollout.n_samples_per_prompt = {n}. "
            "A rollout was lost or filtered: see the rollout workers' log."
        )
    answers = final_answers(samples, tokenizer)
    return [_group(samples[start : start + n], answers[start : start + n]) for start in range(0, len(samples), n)]


def _group(samples: Sequence[Any], answers: Sequence[str | None]) -> RolloutGroup:
    prompts = {prompt for sample in samples for prompt in sample.prompts}
    if len(prompts) != 1:
        raise GroupError(
            f"{len(samples)} neighbouring rollouts belong to {len(prompts)} prompts, for example "
            f"{sorted(prompts)[0][:60]!r} and {sorted(prompts)[-1][:60]!r}. The host's order of rollouts is not what "
            "the hook relies on; votes would be wrong."
        )
    gold = samples[0].labels[0] if samples[0].labels else None
    beside = votes_beside(samples[0])
    return RolloutGroup(
        prompt=prompts.pop(),
        samples=tuple(samples),
        answers=(*answers, *(vote.answer for vote in beside)),
        truncated=(*(is_truncated(sample) for sample in samples), *(vote.truncated for vote in beside)),
        gold=str(gold) if gold not in (None, "") else None,
        entropies=entropies_of(samples),
    )


def is_truncated(sample: Any) -> bool:
    """Whether generation stopped at its length limit (finish_reason "length", utils/agent.py)."""
    return bool(sample.truncated.item())


def final_answers(samples: Sequence[Any], tokenizer: Tokenizer) -> list[str | None]:
    """The final answer of each rollout, None where it is missing or the rollout was truncated."""
    texts = tokenizer.batch_decode([response_tokens(sample) for sample in samples], skip_special_tokens=True)
    return [None if is_truncated(sample) else extract(text) for sample, text in zip(samples, texts, strict=True)]


def response_tokens(sample: Any) -> list[int]:
    """Token ids of the response: `action_mask` (1, T-1) marks, for each token but the first, whether it is one."""
    tokens: list[int] = sample.sequences[0, 1:][sample.action_mask[0].to(torch.bool)].tolist()
    return tokens
