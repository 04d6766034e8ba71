"""The file that OpenRLHF loads as --train.agent_func_path: it draws and scores a prompt's rollouts as one group."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from openrlhf.utils.agent import SingleTurnAgentExecutor

from restrain_openrlhf.config.checks import other_size, unfit_plan
from restrain_openrlhf.data.identity import model_fingerprint
from restrain_openrlhf.errors import ConfigError, GroupError, HookNotActiveError
from restrain_openrlhf.hook.install import instrument
from restrain_openrlhf.hook.install.environment import UNMARKED, config_of_agent, refuse_lost_rewards, trainers_command
from restrain_openrlhf.hook.install.instrument import is_active
from restrain_openrlhf.hook.rollout.group_columns import PLACE, ScoredGroup, columns, labels, vote_columns
from restrain_openrlhf.hook.rollout.rollout_engine import GroupGathering, PlannedEngine, RecordingEngine, all_or_none
from restrain_openrlhf.hook.rollout.samples import tokenizer_here
from restrain_openrlhf.hook.rollout.training_data import LabelWithRow, TrainingRow
from restrain_openrlhf.hook.rollout.trajectories import WrappedAgent, agent_columns
from restrain_openrlhf.method import GroupScore, build
from restrain_openrlhf.method.rollout_plans import Chain, RolloutPlan
from restrain_openrlhf.reference.artifact import NeededReference, refuse_mismatch
from restrain_openrlhf.scoring.scorer import GroupScorer, score_whole_group
from restrain_openrlhf.scoring.wire import GroupRequest, GroupResponse

# Of the model that the rollout actor has loaded (actor.model_name_or_path).
_fingerprint = cache(model_fingerprint)


class HostRollout(TypedDict):
    """What the host's executor returns for one rollout (utils/agent.py), as far as it is read or changed here."""

    observation_tokens: Sequence[int] | NDArray[np.int64]
    action_ranges: list[tuple[int, int]]
    rollout_log_probs: Sequence[float] | NDArray[np.float32] | None
    truncated: bool
    label: Any
    reward: float | None
    scores: float | None
    extra_logs: dict[str, float]


@dataclass(frozen=True)
class Call:
    """The host's arguments for one rollout (utils/agent.py, SingleTurnAgentExecutor.execute), equal within a group."""

    prompt: str
    label: Any
    sampling_params: Any
    max_length: int
    hf_tokenizer: Any
    llm_engine: Any
    images: Any = None

    async def with_tokenizer(self) -> "Call":
        """This call with the tokenizer itself, of which the hooked trainer sends only a reference."""
        return replace(self, hf_tokenizer=await tokenizer_here(self.hf_tokenizer))


@dataclass(frozen=True)
class Drawn:
    """A drawn group: its trained rollouts, the responses that vote, and the number of tokens generated for it.

    `responses` begins with those of the trained rollouts. `logs` is None, or what the user's own agent logs, one row
    for each trained rollout.
    """

    trained: list[HostRollout]
    responses: tuple[GroupResponse, ...]
    tokens: int
    entropies: tuple[float, ...] | None = None
    logs: Sequence[Mapping[str, float]] | None = None


class AgentExecutor(SingleTurnAgentExecutor):  # type: ignore[misc]
    """Draws with OpenRLHF's own single turn or with the user's own agent, and scores the group as a whole.

    Under our entry point a rollout's reward is the expected reward, and the trainer reads A⁺ and A⁻ from extra_logs.
    There, rollouts of an evaluation are drawn as the host draws them, and graded by their labels. Otherwise the reward
    is the net advantage A⁺ + A⁻ (docs/journeys/integration.md), no label is read, and an evaluation is refused.
    """

    def __init__(self) -> None:
        super().__init__()
        instrument.check_agent()
        config = config_of_agent(hooked=is_active())
        if not is_active():
            refuse_lost_rewards(trainers_command())
        self._method = build(config.method)
        self._scorer = GroupScorer.by(config.method, config.reference, config.answers, config.answer_rows)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="score")
        self._groups: GroupGathering[HostRollout] = GroupGathering()
        # Temperature and rollouts per prompt of training, which are those of the first group.
        self._sampling: tuple[float, int] | None = None
        self._settings = config
        self._agent = None if config.agent is None else WrappedAgent(config.agent)
        if self._agent is not None and (reason := unfit_plan(self._method.rollouts)):
            raise ConfigError(reason)

    async def execute(self, **asked: Any) -> HostRollout:
        """One rollout, with the host's keys; `asked` has the fields of Call.

        Raises a RestrainError if the rollout's group cannot be scored.
        """
        call = Call(**asked)
        row = training_row(call)
        if row is None:
            return await self._evaluate(call)
        return await self._groups.member(call.sampling_params, call.prompt, lambda n: self._train(call, row, n))

    async def _evaluate(self, call: Call) -> HostRollout:
        output, text = await self._draw_evaluated(await call.with_tokenizer())
        label, kind = LabelWithRow.of(call.label), self._settings.answers
        row = kind.row(call.prompt, {}) if label.row is None else label.row
        grade = await asyncio.to_thread(kind.grade, text, str(label.label), row)
        return {**output, "label": label.label, "reward": float(grade.correct), "scores": float(grade.correct)}

    async def _draw_evaluated(self, call: Call) -> tuple[HostRollout, str]:
        """A rollout with the text to grade, which is empty if the user's agent failed."""
        if self._agent is None:
            output = await self._draw_one(replace(call, sampling_params=without_text(call.sampling_params)))
            return output, texts_of([output], call.hf_tokenizer)[0]
        drawn = await self._agent.trajectory(vars(call))
        rollout: Any = {**drawn.output, "extra_logs": {}}
        return rollout, "" if drawn.error else drawn.text

    async def _train(self, call: Call, row: TrainingRow, n: int) -> list[HostRollout]:
        if not is_active():
            self._refuse_evaluation(float(call.sampling_params.temperature), n)
        if n == 1:
            raise GroupError(
                f"OpenRLHF drew a single rollout for the prompt {call.prompt[:60]!r}, but a vote needs a group. Set "
                "rollout.n_samples_per_prompt to 2 or more (the paper uses 16)."
            )
        call = await call.with_tokenizer()
        needed = await self._needed(call, n)
        drawn = await (self._draw(call, row, n) if self._agent is None else self._draw_by(self._agent, call, row, n))
        own = None if row.row is None else dict(row.row)
        request = GroupRequest(
            prompt=call.prompt,
            responses=drawn.responses,
            gold=row.gold,
            entropies=drawn.entropies,
            row=own,
            past=row.past,
        )
        score = await self._score(request, needed)
        rewards = score.rewards if is_active() else score.pair.net
        extras = extra_logs(request, score, row, drawn)
        carried = labels(ScoredGroup(request, score, drawn.tokens), n, carry=is_active())
        return [
            {**as_arrays(output), "reward": reward, "scores": expected, "label": label, "extra_logs": extra}
            for output, reward, expected, label, extra in zip(
                drawn.trained, rewards.tolist(), score.rewards.tolist(), carried, extras, strict=True
            )
        ]

    async def _score(self, group: GroupRequest, needed: NeededReference | None) -> GroupScore:
        if needed is not None and self._scorer.reference is not None:
            refuse_mismatch(self._scorer.reference, needed)
        return await asyncio.get_running_loop().run_in_executor(self._thread, score_whole_group, self._scorer, group)

    def _refuse_evaluation(self, temperature: float, n: int) -> None:
        """Raises ConfigError for a group that is drawn otherwise than the first one.

        Without our entry point nothing marks the rows of an evaluation, whose groups would vote. The host trains before
        it evaluates, and draws an evaluation with values of its own (trainer/ppo_trainer.py, fit).
        """
        self._sampling = self._sampling or (temperature, n)
        if (temperature, n) != self._sampling:
            raise ConfigError(
                f"A group is drawn with temperature {temperature:g}, {n} rollouts of a prompt; training draws with "
                f"temperature {self._sampling[0]:g}, {self._sampling[1]} rollouts. It is an evaluation, whose rows "
                f"would vote. {UNMARKED}"
            )

    async def _needed(self, call: Call, n: int) -> NeededReference | None:
        """How the reference must have been made, as far as a rollout actor knows; None if the method reads none.

        The model and the template are missing under our entry point, which compares them before anything starts.
        """
        if not self._method.needs_reference:
            return None
        sampling, fingerprint = call.sampling_params, None
        if not is_active():
            # The host's create_vllm_engines names it `model` (trainer/ray/vllm_engine.py).
            fingerprint = await asyncio.to_thread(_fingerprint, str(call.llm_engine.kwargs["model"]))
        return NeededReference(
            model_fingerprint=fingerprint,
            n=n,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_new_tokens=sampling.max_tokens or call.max_length,
            agent=self._settings.agent_identity,
        ).by(self._settings.reference_n, self._settings.reference_sampling)

    async def _draw(self, call: Call, row: TrainingRow, n: int) -> Drawn:
        """The n trained rollouts, each in a single turn, and all rollouts of the method's plan if it has one."""
        asked = without_text(call.sampling_params)
        if is_active():
            # The trainer compares these log-probabilities with the policy's (hook/policy/experience.py).
            asked.logprobs = asked.logprobs or 0
        plan, seed = self._plan(n), row.visit.seed if row.visit else None
        # A plan seeds its own requests, because they do not arrive in the order of their places in the plan.
        engine = RecordingEngine(call.llm_engine, seed if plan is None else None)
        planned = None if plan is None else PlannedEngine(engine, plan, seed)
        one = replace(call, sampling_params=asked, llm_engine=planned or engine)
        outputs = await all_or_none([self._draw_one(one) for _ in range(n)])
        chains = [] if planned is None else planned.drawn()
        known = any(chain.entropies for chain in chains)
        entropies = tuple(chain.mean_entropy for chain in chains[:n]) if known else None
        return Drawn(outputs, responses_of(outputs, chains[n:], call.hf_tokenizer), engine.generated, entropies)

    async def _draw_by(self, agent: WrappedAgent, call: Call, row: TrainingRow, n: int) -> Drawn:
        """The same as `_draw`, with trajectories of the user's own agent, also for the voters of a plan."""
        plan, seed = self._plan(n), row.visit.seed if row.visit else None
        drawn = await agent.group(vars(call), n if plan is None else plan.voters, seed, log_probs=is_active())
        responses = tuple(GroupResponse(text=each.text, finished=each.finished) for each in drawn)
        trained: list[Any] = [each.output for each in drawn[:n]]
        return Drawn(trained, responses, sum(each.generated for each in drawn), logs=agent_columns(drawn, n))

    def _plan(self, n: int) -> RolloutPlan | None:
        """The method's plan. Raises ConfigError if it trains on another number of rollouts than n."""
        plan = self._method.rollouts
        if plan is not None and (reason := other_size(plan, n)):
            raise ConfigError(reason)
        return plan

    async def _draw_one(self, call: Call) -> HostRollout:
        rollout: HostRollout = await super().execute(**vars(call))
        return rollout


def training_row(call: Call) -> TrainingRow | None:
    """The training row of a call, or None for an evaluation.

    Our entry point marks training prompts with a TrainingRow. Without it every row counts as training here, and
    evaluations are refused once the group is known. Raises HookNotActiveError if only one of the process that read
    the prompt and this process is hooked.
    """
    if isinstance(call.label, TrainingRow) and is_active():
        return call.label
    if isinstance(call.label, TrainingRow) or (is_active() and LabelWithRow.of(call.label).gold is None):
        raise HookNotActiveError(
            "One of the processes that read prompts and draw rollouts runs with the RESTRAIN hook, and another runs "
            "without it."
        )
    return None if is_active() else TrainingRow()


def without_text(sampling_params: Any) -> Any:
    """The parameters without detokenization: of a single turn the host only reads the tokens.

    vLLM would turn every token into text as it is sampled, and every likely token whose log-probability is asked for,
    which takes much of a rollout's time. `texts_of` decodes a whole response at once.
    """
    asked = deepcopy(sampling_params)
    asked.detokenize = False
    return asked


def texts_of(outputs: Sequence[HostRollout], tokenizer: Any) -> list[str]:
    """The texts of the responses, without special tokens."""
    spans = [(output["observation_tokens"], output["action_ranges"][0]) for output in outputs]
    return [tokenizer.decode(tokens[start:end], skip_special_tokens=True) for tokens, (start, end) in spans]


def as_arrays(rollout: HostRollout) -> HostRollout:
    """The rollout with its tokens and their log-probabilities as arrays.

    The trainer, to which all rollouts come, makes a tensor of both (trainer/ppo_utils/samples_generator.py). From an
    array that is a copy; from a list it is a loop over Python's numbers.
    """
    log_probs = rollout["rollout_log_probs"]
    return {
        **rollout,
        "observation_tokens": np.array(rollout["observation_tokens"], dtype=np.int64),
        "rollout_log_probs": None if log_probs is None else np.array(log_probs, dtype=np.float32),
    }


def responses_of(outputs: Sequence[HostRollout], voting: Sequence[Chain], tokenizer: Any) -> tuple[GroupResponse, ...]:
    """The responses of the trained rollouts, then those of the plan's rollouts that only vote."""
    decode = partial(tokenizer.decode, skip_special_tokens=True)
    texts = [*texts_of(outputs, tokenizer), *(decode(list(chain.tokens)) for chain in voting)]
    cut = [*(output["truncated"] for output in outputs), *(chain.is_truncated for chain in voting)]
    return tuple(GroupResponse(text=text, finished=not end) for text, end in zip(texts, cut, strict=True))


def extra_logs(request: GroupRequest, score: GroupScore, row: TrainingRow, drawn: Drawn) -> list[dict[str, float]]:
    """The numbers that each trained rollout carries: those of the user's agent, and its own.

    Without the hook, which reads the group's numbers from its ScoredGroup, every rollout carries those, too.
    """
    place = {} if row.visit is None else {PLACE: row.visit.place}
    group = {} if is_active() else vote_columns(request, score)
    scored = columns(request, score)
    logs = drawn.logs or [{}] * len(scored)
    return [{**own, **one, **place, **group} for own, one in zip(logs, scored, strict=True)]
