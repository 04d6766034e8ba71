"""Stands in for vLLM's engine while a group is drawn: counts tokens, seeds requests, hands out a plan's rollouts."""

import asyncio
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Self

from restrain_openrlhf.hook.rollout.training_data import rollout_seed
from restrain_openrlhf.method.rollout_plans import Chain, RolloutPlan, token_entropy


@dataclass(frozen=True)
class PlannedOutput:
    """What the host reads of vLLM's RequestOutput (utils/agent.py, SingleTurnAgentExecutor.execute)."""

    outputs: tuple[Any, ...]

    @classmethod
    def of(cls, chain: Chain) -> Self:
        """The chain in the form in which vLLM returns a completion."""
        from vllm.logprobs import Logprob  # noqa: PLC0415 - must come after the device is prepared
        from vllm.outputs import CompletionOutput  # noqa: PLC0415

        log_probs = [{token: Logprob(value)} for token, value in zip(chain.tokens, chain.log_probs, strict=True)]
        reason = chain.finish_reason
        return cls((CompletionOutput(0, "", list(chain.tokens), None, log_probs, finish_reason=reason),))


class GroupEngine:
    """The engine of one group. With a `seed`, each request in turn gets a seed of its own.

    `tokens` counts the generated tokens; those that branches of a tree share are counted once.
    """

    def __init__(self, engine: Any, seed: int | None = None) -> None:
        self._engine, self._seed = engine, seed
        self._turn = count()
        self.tokens = 0

    async def generate(self, prompt_token_ids: list[int], sampling_params: Any, multi_modal_data: Any = None) -> Any:
        """The engine's output."""
        if self._seed is not None:
            sampling_params = deepcopy(sampling_params)
            sampling_params.seed = rollout_seed(self._seed, next(self._turn))
        output = await self._engine.generate(prompt_token_ids, sampling_params, multi_modal_data)
        self.tokens += len(output.outputs[0].token_ids)
        return output


class PlannedEngine:
    """The engine of a group with a plan, which is drawn when the host's first request brings prompt and parameters.

    Without a `seed`, vLLM uses the seed of its engine.
    """

    def __init__(self, engine: GroupEngine, plan: RolloutPlan, seed: int | None = None) -> None:
        self._engine, self._plan, self._seed = engine, plan, seed
        self._turn = count()
        self._drawing: asyncio.Task[list[Chain]] | None = None

    async def generate(
        self, prompt_token_ids: list[int], sampling_params: Any, multi_modal_data: Any = None
    ) -> PlannedOutput:
        """The next rollout of the plan, in the order of the requests."""
        turn = next(self._turn)
        if self._drawing is None:
            top_k, seed = self._plan.top_k, self._seed
            sampler = Sampler(self._engine, prompt_token_ids, sampling_params, multi_modal_data, top_k, seed)
            self._drawing = asyncio.create_task(self._plan.draw(sampler))
        return PlannedOutput.of((await self._drawing)[turn])

    def drawn(self) -> list[Chain]:
        """All rollouts of the plan. Call it after the host has drawn the trained rollouts."""
        assert self._drawing is not None, "asked for the rollouts before the host drew any"
        return self._drawing.result()


@dataclass(frozen=True)
class Sampler:
    """Samples continuations of one prompt from vLLM, within the host's limit of new tokens."""

    engine: Any
    prompt: Sequence[int]
    parameters: Any
    multi_modal_data: Any
    top_k: int | None = None
    seed: int | None = None

    async def __call__(self, response: Sequence[int], place: int) -> Chain:
        """The response continued to its end. `response` must have fewer tokens than a response may have."""
        room = self.parameters.max_tokens - len(response)
        parameters = deepcopy(self.parameters)
        parameters.max_tokens = room
        # The host's minimum is that of the whole response, but vLLM applies it to the request.
        parameters.min_tokens = min(max(parameters.min_tokens - len(response), 0), room)
        parameters.logprobs = self.top_k or 0
        if self.seed is not None:
            parameters.seed = rollout_seed(self.seed, place)
        output = await self.engine.generate([*self.prompt, *response], parameters, self.multi_modal_data)
        return self._chain(output.outputs[0])

    def _chain(self, completion: Any) -> Chain:
        tokens = tuple(completion.token_ids)
        sampled = zip(tokens, completion.logprobs, strict=True)
        chain = Chain(tokens, completion.finish_reason, tuple(entries[token].logprob for token, entries in sampled))
        if self.top_k is None:
            return chain
        return replace(chain, entropies=tuple(token_entropy(self._likely(entries)) for entries in completion.logprobs))

    def _likely(self, entries: Any) -> list[float]:
        """The k highest log-probabilities, highest first.

        vLLM also gives that of the sampled token, whatever its rank.
        """
        ranked = sorted((entry.rank, entry.logprob) for entry in entries.values())
        return [log_prob for rank, log_prob in ranked if self.top_k and rank <= self.top_k]
