"""How a group is drawn: members are gathered, requests seeded and recorded, and a plan's rollouts handed out."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Generic, Self, TypeVar

from restrain_openrlhf.errors import GroupError
from restrain_openrlhf.hook.rollout.training_data import seed_of
from restrain_openrlhf.method.rollout_plans import Chain, RolloutPlan, token_entropy

T = TypeVar("T")
Draw = Callable[[int], Awaitable[Sequence[T]]]


@dataclass
class _Group(Generic[T]):
    """A group whose members join.

    `shared` is kept so that no other object gets its id; `outcome` is None until drawing.
    """

    shared: object
    prompt: str
    size: int = 0
    outcome: "asyncio.Future[Sequence[T]] | None" = None

    def fail(self) -> None:
        """End the drawing: no member gets a rollout."""
        if self.outcome is None:
            self.outcome = asyncio.get_running_loop().create_future()
        self.outcome.cancel()


class GroupGathering(Generic[T]):
    """The groups of this process whose members are still joining.

    RolloutRayActor.generate_responses (trainer/ray/vllm_engine.py) starts all rollouts of a prompt before any of them
    continues, and hands all of them the same object of sampling parameters, which identifies the group. The trainer
    checks that they were scored together (group_columns.py, take_votes).
    """

    def __init__(self) -> None:
        self._joining: dict[int, _Group[T]] = {}

    async def member(self, shared: object, prompt: str, draw: Draw[T]) -> T:
        """This member's rollout.

        `draw(n)` is called once for the group, and returns n rollouts in the order of the members.

        If `draw` raises, every member raises the same error. Raises GroupError if two prompts share an object of
        parameters, and in all other members where one member is cancelled.
        """
        group = self._joining.setdefault(id(shared), _Group(shared, prompt))
        if group.prompt != prompt:
            raise GroupError(
                f"OpenRLHF gave two prompts the same sampling_params object, {group.prompt[:60]!r} and "
                f"{prompt[:60]!r}. The hook tells groups apart by that object, so that votes would be wrong. Install "
                "the openrlhf that `restrain doctor` names, unchanged."
            )
        place = group.size
        group.size += 1
        try:
            # After this, all members of the group have been started.
            await asyncio.sleep(0)
            self._close(group)
            if group.outcome is None:
                group.outcome = asyncio.ensure_future(draw(group.size))
            return (await asyncio.shield(group.outcome))[place]
        except asyncio.CancelledError:
            self._close(group)
            group.fail()
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise GroupError(
                f"Another rollout of the prompt {prompt[:60]!r} was cancelled, and a vote needs the whole group."
            ) from None

    def _close(self, group: _Group[T]) -> None:
        """Stop joining: a later call with the same parameters belongs to another group."""
        if self._joining.get(id(group.shared)) is group:
            del self._joining[id(group.shared)]


async def all_or_none(rollouts: Sequence[Awaitable[Any]]) -> list[Any]:
    """The results of all, awaited at the same time. If one fails, the others are cancelled and its error is raised."""
    tasks = [asyncio.ensure_future(rollout) for rollout in rollouts]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


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


@dataclass(frozen=True)
class Turn:
    """One request of a trajectory: the tokens before it, and the generated tokens with their log-probabilities."""

    before: list[int]
    tokens: list[int]
    log_probs: list[float] | None

    @property
    def span(self) -> tuple[int, int]:
        """The positions of the generated tokens in the trajectory."""
        return len(self.before), len(self.before) + len(self.tokens)


class RecordingEngine:
    """The engine of one trajectory or group, which records every request; all else is the host's rollout actor's.

    With a `seed`, each request gets a seed of its own. With `log_probs`, log-probabilities are requested even if the
    agent does not ask for them.
    """

    def __init__(self, engine: Any, seed: int | None = None, log_probs: bool = False) -> None:
        self._engine, self._seed, self._log_probs = engine, seed, log_probs
        self._requests = count()
        self.turns: list[Turn] = []
        self.failure: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(self, prompt_token_ids: list[int], sampling_params: Any, multi_modal_data: Any = None) -> Any:
        """The engine's output. An error of the engine is kept as `failure`, to tell it from an error of the agent."""
        asked, request = deepcopy(sampling_params), next(self._requests)
        if self._seed is not None:
            asked.seed = seed_of("rollout", self._seed, request)
        if self._log_probs:
            asked.logprobs = asked.logprobs or 0
        try:
            output = await self._engine.generate(prompt_token_ids, asked, multi_modal_data)
        except Exception as error:
            self.failure = error
            raise
        made = output.outputs[0]
        tokens, found = list(made.token_ids), made.logprobs
        log_probs = found and [each[token].logprob for token, each in zip(tokens, found, strict=True)]
        self.turns.append(Turn(list(prompt_token_ids), tokens, log_probs))
        return output

    @property
    def generated(self) -> int:
        return sum(len(turn.tokens) for turn in self.turns)

    def kept(self, trajectory: Sequence[int]) -> list[Turn]:
        """The turns that the trajectory contains. An agent may ask for tokens that it does not keep."""
        return [turn for turn in self.turns if list(trajectory[: turn.span[1]]) == [*turn.before, *turn.tokens]]

    def log_probs(self, trajectory: Sequence[int]) -> list[float]:
        """The log-probability of each token of the trajectory; 0 for tokens that the policy did not generate."""
        found = [0.0] * len(trajectory)
        for turn in self.kept(trajectory):
            found[slice(*turn.span)] = turn.log_probs or []
        return found


class PlannedEngine:
    """The engine of a group with a plan, which is drawn when the host's first request brings prompt and parameters.

    Without a `seed`, vLLM uses the seed of its engine.
    """

    def __init__(self, engine: RecordingEngine, plan: RolloutPlan, seed: int | None = None) -> None:
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
            parameters.seed = seed_of("rollout", self.seed, place)
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
