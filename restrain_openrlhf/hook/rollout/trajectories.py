"""Trajectories that the user's own agent draws, in rollout actors and in the offline pass: what votes, and failures."""

import asyncio
import importlib.util
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from openrlhf.utils.agent import AgentExecutorBase

from restrain_openrlhf.answers.kinds.reading import tagged
from restrain_openrlhf.config.host_flags import is_agent
from restrain_openrlhf.config.yaml_file import Agent
from restrain_openrlhf.errors import ConfigError, GroupError
from restrain_openrlhf.hook.rollout.group_columns import AGENT_FAILED, AGENT_LOG, AGENT_REWARD, AGENT_TURNS
from restrain_openrlhf.hook.rollout.rollout_engine import RecordingEngine, all_or_none
from restrain_openrlhf.hook.rollout.training_data import seed_of
from restrain_openrlhf.reference.offline_engine import Rollout, RolloutEngine, Sampling, prompt_seed
from restrain_openrlhf.reference.prompts import Prompt

# How long a batch waits for requests that will arrive at almost the same time.
GATHERING_SECONDS = 0.01
# If all trajectories of one prompt fail, the policy may be the cause; for so many prompts in a row it is the agent.
FAILED_PROMPTS = 4


@dataclass(frozen=True)
class Trajectory:
    """The executor's output (the host's keys, utils/agent.py), the text that votes, and the number of generated tokens.

    `finished` is False if generation was cut off or the agent failed; then `error` is the agent's.
    """

    output: dict[str, Any]
    text: str
    finished: bool
    generated: int
    error: Exception | None = None

    def logs(self) -> dict[str, float]:
        """The agent's reward, turns and extra logs by metric names.

        Raises ConfigError for a value that is no number.
        """
        own = {f"{AGENT_LOG}{name}": value for name, value in (self.output.get("extra_logs") or {}).items()}
        named = {AGENT_REWARD: self.output.get("reward"), AGENT_TURNS: len(self.output["action_ranges"]), **own}
        return {name: _number(name, value) for name, value in named.items() if value is not None}


class WrappedAgent:
    """The user's executor, and how trajectories are drawn with it and read.

    The executor never sees a label, so it draws the same way in training, evaluation and the offline pass.
    """

    def __init__(self, settings: Agent) -> None:
        self._settings, self._executor = settings, load_executor(settings)
        self._failed_prompts = 0

    async def group(self, ask: Mapping[str, Any], n: int, seed: int | None, log_probs: bool) -> list[Trajectory]:
        """n trajectories of one prompt.

        Raises GroupError if all trajectories of FAILED_PROMPTS prompts in a row failed.

        `ask` has the host's arguments for a rollout (utils/agent.py, AgentExecutorBase.execute). Also raises what the
        engine raises.
        """
        seeds = [None if seed is None else seed_of("rollout", seed, place) for place in range(n)]
        drawn = await all_or_none([self.trajectory(ask, each, log_probs) for each in seeds])
        errors = [each.error for each in drawn if each.error is not None]
        self._failed_prompts = self._failed_prompts + 1 if len(errors) == n else 0
        if self._failed_prompts == FAILED_PROMPTS:
            raise GroupError(
                f"All trajectories of {FAILED_PROMPTS} prompts in a row failed. The first error for "
                f"{ask['prompt'][:60]!r}: {errors[0]!r}. (An agent gets no label.) Try {self._settings.path} on this "
                "prompt outside the run, then start the run again."
            ) from errors[0]
        return drawn

    async def trajectory(self, ask: Mapping[str, Any], seed: int | None = None, log_probs: bool = False) -> Trajectory:
        """One trajectory.

        If the agent raises or takes too long, it ends there without an answer, and the log says why.
        """
        engine = RecordingEngine(ask["llm_engine"], seed, log_probs)
        own = {**ask, "label": "", "llm_engine": engine, "sampling_params": deepcopy(ask["sampling_params"])}
        if log_probs:
            own["sampling_params"].logprobs = own["sampling_params"].logprobs or 0
        try:
            async with asyncio.timeout(self._settings.trajectory_seconds):
                output = await self._executor.execute(**own)
        except Exception as error:
            # What the agent has drawn so far cannot stand in for a trajectory with images, which it lacks.
            if engine.failure is not None or own.get("images"):
                raise
            logging.getLogger(__name__).warning(
                "A trajectory of the prompt %r failed and has no answer: %r", ask["prompt"][:60], error, exc_info=error
            )
            return self._failed(own, engine, error)
        self._refuse_wrong(output)
        tokens = output["observation_tokens"]
        if log_probs and output.get("rollout_log_probs") is None:
            output = {**output, "rollout_log_probs": engine.log_probs(tokens)}
        is_cut = output.get("truncated", False) or len(tokens) >= ask["max_length"]
        return Trajectory(output, self._voted(output, ask["hf_tokenizer"]), not is_cut, engine.generated)

    def _failed(self, ask: Mapping[str, Any], engine: RecordingEngine, error: Exception) -> Trajectory:
        """The trajectory so far. The policy is trained on its turns, as on any rollout without an answer."""
        tokenized = ask["hf_tokenizer"](text=ask["prompt"], add_special_tokens=False, return_tensors="pt")
        turns = engine.turns[-1:]
        tokens = [*turns[0].before, *turns[0].tokens] if turns else tokenized["input_ids"][0].tolist()
        output = {
            "prompt": ask["prompt"],
            "images": None,
            "mm_train_inputs": None,
            "observation_tokens": tokens,
            "action_ranges": [turn.span for turn in engine.kept(tokens)],
            "rollout_log_probs": engine.log_probs(tokens) if ask["sampling_params"].logprobs is not None else None,
            "truncated": False,
        }
        return Trajectory(output, self._voted(output, ask["hf_tokenizer"]), False, engine.generated, error)

    def _voted(self, output: Mapping[str, Any], tokenizer: Any) -> str:
        """The text that the kind of answer reads, without special tokens."""
        spans = output["action_ranges"] if self._settings.turns == "all" else output["action_ranges"][-1:]
        tokens = output["observation_tokens"]
        text = "\n".join(tokenizer.decode(tokens[start:end], skip_special_tokens=True) for start, end in spans)
        return text if self._settings.tag is None else tagged(text, self._settings.tag) or ""

    def _refuse_wrong(self, output: Mapping[str, Any]) -> None:
        """Raises ConfigError if the output would make the host train on tokens that are not the policy's."""
        tokens, log_probs = output["observation_tokens"], output.get("rollout_log_probs")
        ends = [end for span in output["action_ranges"] for end in span]
        if ends != sorted(ends) or not all(0 <= end <= len(tokens) for end in ends):
            found = f"action_ranges {output['action_ranges']} in {len(tokens)} tokens"
        elif log_probs is not None and len(log_probs) != len(tokens):
            found = f"{len(log_probs)} rollout_log_probs for {len(tokens)} observation_tokens"
        else:
            return
        raise ConfigError(
            f"{self._settings.path}: AgentExecutor.execute returned {found}, which do not fit together. Correct the "
            "agent."
        )


def agent_columns(drawn: Sequence[Trajectory], trained: int) -> list[dict[str, float]]:
    """The numbers of each trained trajectory, and the share of all trajectories that failed.

    A number that one trajectory lacks is the group's mean, because the host requires the same names in all.
    """
    rows = [each.logs() for each in drawn[:trained]]
    names = dict.fromkeys(name for row in rows for name in row)
    means = {name: fmean(row[name] for row in rows if name in row) for name in names}
    failed = sum(each.error is not None for each in drawn) / len(drawn)
    return [{**means, **row, AGENT_FAILED: failed} for row in rows]


def load_executor(agent: Agent) -> Any:
    """The user's AgentExecutor. Raises ConfigError if the file has none, or its code fails as it is loaded."""
    if is_agent(str(agent.path)):
        raise ConfigError(
            f"agent: {agent.path} is this project's own agent. Name the file of your agent, or remove `agent:`."
        )
    # Reading the text raises an error that explains a file that cannot be read.
    agent.text  # noqa: B018
    executor = _executor_in(agent.path)
    if executor is None:
        raise ConfigError(
            f"agent: {agent.path} has no class AgentExecutor that inherits from "
            "openrlhf.utils.agent.AgentExecutorBase (or from its subclass MultiTurnAgentExecutor); OpenRLHF loads "
            "that class. Add it."
        )
    return executor


def _executor_in(path: Path) -> Any:
    """The AgentExecutor of a Python file; None if it has no such class."""
    spec = importlib.util.spec_from_file_location("wrapped_agent", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"agent: {path} is not a Python file. Name the agent's file, which must end in .py.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        found = getattr(module, "AgentExecutor", None)
        return found() if isinstance(found, type) and issubclass(found, AgentExecutorBase) else None
    except Exception as error:
        raise ConfigError(f"agent: {path} cannot be loaded: {error!r}. Correct the file.") from error


def _number(name: str, value: Any) -> float:
    try:
        return float(value.flatten()[0] if hasattr(value, "flatten") else value)
    except (TypeError, ValueError, IndexError):
        raise ConfigError(
            f"The agent's extra_logs have {name} = {value!r}, which is not a number. Give numbers only."
        ) from None


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
