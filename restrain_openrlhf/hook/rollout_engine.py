"""Stands in for a RolloutRayActor while the host draws one group: hands out the rollouts of a plan, one per request."""

import asyncio
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import count
from typing import Any

from restrain_openrlhf.answers import extract
from restrain_openrlhf.rollouts import Chain, RolloutPlan
from restrain_openrlhf.rollouts.entropy import token_entropy


@dataclass(frozen=True)
class Completion:
    """What the host reads of vLLM's CompletionOutput (utils/agent.py, SingleTurnAgentExecutor.execute)."""

    token_ids: list[int]
    finish_reason: str | None
    logprobs: None = None


@dataclass(frozen=True)
class Output:
    """What the host reads of vLLM's RequestOutput."""

    outputs: tuple[Completion, ...]


class PlannedEngine:
    """Has the two attributes of RolloutRayActor (trainer/ray/vllm_engine.py) that generating a group uses.

    The plan is drawn when the host's first request says what the prompt's tokens and the sampling parameters are.
    """

    def __init__(self, actor: Any, plan: RolloutPlan, tokenizer: Any) -> None:
        self.executor = actor.executor
        self._actor = actor
        self._plan = plan
        self._tokenizer = tokenizer
        self._turn = count()
        self._drawing: asyncio.Task[list[Chain]] | None = None

    async def generate(self, prompt_token_ids: list[int], sampling_params: Any, multi_modal_data: Any = None) -> Output:
        """The next rollout of the plan, in the order of the requests."""
        turn = next(self._turn)
        if self._drawing is None:
            sampler = Sampler(self._actor, prompt_token_ids, sampling_params, multi_modal_data, self._special_tokens())
            self._drawing = asyncio.create_task(self._plan.draw(sampler.for_plan(self._plan)))
        chain = (await self._drawing)[turn]
        return Output((Completion(list(chain.tokens), chain.finish_reason),))

    async def trained(self) -> list[Chain]:
        """The rollouts that the host got."""
        return (await self._chains())[: self._plan.trained]

    async def votes_beside(self) -> list[str | None]:
        """The answers of those that only vote; None where there is none or the rollout was truncated."""
        return [self._answer(chain) for chain in (await self._chains())[self._plan.trained :]]

    def _answer(self, chain: Chain) -> str | None:
        if chain.is_truncated:
            return None
        return extract(self._tokenizer.decode(list(chain.tokens), skip_special_tokens=True))

    async def _chains(self) -> list[Chain]:
        assert self._drawing is not None, "asked for the rollouts before the host drew any"
        return await self._drawing

    def _special_tokens(self) -> frozenset[int]:
        return frozenset(self._tokenizer.all_special_ids)


@dataclass(frozen=True)
class Sampler:
    """Samples continuations of one prompt from vLLM, within the host's limit of new tokens."""

    actor: Any
    prompt: Sequence[int]
    parameters: Any
    multi_modal_data: Any
    special_tokens: frozenset[int]
    top_k: int | None = None

    def for_plan(self, plan: RolloutPlan) -> "Sampler":
        """With the log-probabilities the plan wants."""
        return Sampler(self.actor, self.prompt, self.parameters, self.multi_modal_data, self.special_tokens, plan.top_k)

    async def __call__(self, response: Sequence[int]) -> Chain:
        """A continuation to its end; nothing, truncated, where `response` has used up all new tokens."""
        room = self.parameters.max_tokens - len(response)
        if room <= 0:
            return Chain((), "length")
        parameters = deepcopy(self.parameters)
        parameters.max_tokens = room
        parameters.min_tokens = min(parameters.min_tokens, room)
        parameters.logprobs = self.top_k
        output = await self.actor.generate([*self.prompt, *response], parameters, self.multi_modal_data)
        return self._chain(output.outputs[0])

    def _chain(self, completion: Any) -> Chain:
        tokens = tuple(completion.token_ids)
        if self.top_k is None:
            return Chain(tokens, completion.finish_reason)
        likely = [self._likely(entries) for entries in completion.logprobs]
        return Chain(
            tokens=tokens,
            finish_reason=completion.finish_reason,
            entropies=tuple(token_entropy([log_prob for _, log_prob in position]) for position in likely),
            alternatives=tuple(
                tuple(token for token, _ in position if token not in self.special_tokens) for position in likely
            ),
        )

    def _likely(self, entries: Any) -> list[tuple[int, float]]:
        """The k most likely tokens with their log-probabilities; vLLM adds the sampled token where it is not one."""
        ranked = sorted((entry.rank, token, entry.logprob) for token, entry in entries.items())
        return [(token, log_prob) for rank, token, log_prob in ranked if self.top_k and rank <= self.top_k]
