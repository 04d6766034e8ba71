"""The offline pass with the user's own agent: the requests of its trajectories, gathered for vLLM turn by turn."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from restrain_openrlhf.config.yaml_file import Agent
from restrain_openrlhf.hook.rollout.rollout_engine import all_or_none
from restrain_openrlhf.hook.rollout.trajectories import WrappedAgent
from restrain_openrlhf.reference.offline_engine import Rollout, RolloutEngine, Sampling, prompt_seed
from restrain_openrlhf.reference.prompts import Prompt

# How long a batch waits for requests that will arrive at almost the same time.
GATHERING_SECONDS = 0.01


class GatheredRequests:
    """The engine that an agent asks for tokens, as in the host's rollout actor, on top of vLLM's offline engine.

    Requests that arrive while a batch is drawn go into the next batch. Meanwhile other trajectories can run their
    tools.
    """

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self._waiting: list[tuple[dict[str, Any], Any, asyncio.Future[Any]]] = []
        self._drawing: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="offline engine")

    async def generate(self, prompt_token_ids: list[int], sampling_params: Any, multi_modal_data: Any = None) -> Any:
        """vLLM's RequestOutput."""
        images = {} if multi_modal_data is None else {"multi_modal_data": multi_modal_data}
        drawn: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(({"prompt_token_ids": prompt_token_ids, **images}, sampling_params, drawn))
        if self._drawing is None or self._drawing.done():
            self._drawing = asyncio.create_task(self._draw())
        return await drawn

    async def _draw(self) -> None:
        while self._waiting:
            await asyncio.sleep(GATHERING_SECONDS)
            batch, self._waiting = [each for each in self._waiting if not each[2].done()], []
            try:
                outputs = await asyncio.get_running_loop().run_in_executor(self._thread, self._generate, batch)
            except Exception as error:  # noqa: BLE001 - each of those who wait raises it
                outputs = [error] * len(batch)
            for (_, _, drawn), output in zip(batch, outputs, strict=True):
                if not drawn.done():
                    drawn.set_exception(output) if isinstance(output, Exception) else drawn.set_result(output)

    def _generate(self, batch: Sequence[tuple[dict[str, Any], Any, Any]]) -> list[Any]:
        requests, parameters = [each[0] for each in batch], [each[1] for each in batch]
        return list(self._llm.generate(requests, parameters, use_tqdm=False)) if batch else []


class AgentEngine(RolloutEngine):
    """A RolloutEngine whose rollouts are trajectories of the agent, each with its own seed.

    A trajectory that fails has no answer.
    """

    def __init__(self, agent: Agent, model: str, sampling: Sampling, tokenizer: Any) -> None:
        self._agent = WrappedAgent(agent)
        super().__init__(model, sampling, tokenizer)
        # Use one event loop for all chunks, because what an agent keeps, such as a connection, belongs to its loop.
        self._runner = asyncio.Runner()
        self._requests = GatheredRequests(self._llm)

    def rollouts(self, prompts: Sequence[Prompt]) -> list[list[Rollout]]:
        """n trajectories per prompt. Raises GroupError; see WrappedAgent.group."""
        return self._runner.run(self._drawn(prompts))

    async def _drawn(self, prompts: Sequence[Prompt]) -> list[list[Rollout]]:
        groups = await all_or_none([self._group(prompt) for prompt in prompts])
        return [[Rollout(each.text, each.generated, not each.finished) for each in group] for group in groups]

    async def _group(self, prompt: Prompt) -> Any:
        from vllm import SamplingParams  # noqa: PLC0415 - must come after the device is prepared

        drawn = self._sampling
        # The host's parameters (trainer/ppo_utils/samples_generator.py, _dispatch_prompts_to_vllm).
        parameters = SamplingParams(
            temperature=drawn.temperature,
            top_p=drawn.top_p,
            max_tokens=drawn.max_new_tokens,
            min_tokens=1,
            skip_special_tokens=False,
        )
        ask = {
            "prompt": prompt.text,
            "sampling_params": parameters,
            "max_length": drawn.max_len,
            "hf_tokenizer": self._tokenizer,
            "llm_engine": self._requests,
        }
        return await self._agent.group(ask, drawn.n, prompt_seed(drawn.seed, prompt), log_probs=False)
