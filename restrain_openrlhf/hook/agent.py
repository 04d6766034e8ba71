"""The file that OpenRLHF loads as --train.agent_func_path: it draws and scores a prompt's rollouts as one group."""

import asyncio
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from openrlhf.utils.agent import SingleTurnAgentExecutor

from restrain_openrlhf.config.blocks import EvaluationDraws
from restrain_openrlhf.config.checks import other_size, unfit_plan
from restrain_openrlhf.data.identity import model_fingerprint
from restrain_openrlhf.errors import ConfigError, GroupError, HookNotActiveError
from restrain_openrlhf.hook.install import instrument
from restrain_openrlhf.hook.install.environment import config_of_agent
from restrain_openrlhf.hook.install.instrument import is_active
from restrain_openrlhf.hook.install.trainers_flags import refuse_lost_rewards, trainers_command
from restrain_openrlhf.hook.rollout.group_columns import (
    GENERATED,
    MAJORITY,
    PLACE,
    ScoredGroup,
    columns,
    labels,
    majority_digest,
    vote_columns,
)
from restrain_openrlhf.hook.rollout.group_gathering import GroupGathering, all_or_none
from restrain_openrlhf.hook.rollout.group_scoring import scoring_of
from restrain_openrlhf.hook.rollout.rollout_engine import GroupEngine, PlannedEngine
from restrain_openrlhf.hook.rollout.sent_tokenizer import tokenizer_here
from restrain_openrlhf.hook.rollout.training_data import LabelWithRow, TrainingRow
from restrain_openrlhf.hook.rollout.trajectories import WrappedAgent, agent_columns
from restrain_openrlhf.hook.rollout.unmarked_rows import UnmarkedRows
from restrain_openrlhf.method import GroupScore, build
from restrain_openrlhf.method.rollout_plans import Chain, RolloutPlan
from restrain_openrlhf.reference.checks import NeededReference
from restrain_openrlhf.scoring.threads import scored_in_a_thread
from restrain_openrlhf.scoring.wire import GroupRequest, GroupResponse


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
    """What the host asks one rollout with (utils/agent.py, SingleTurnAgentExecutor.execute); alike in a group."""

    prompt: str
    label: Any
    sampling_params: Any
    max_length: int
    hf_tokenizer: Any
    llm_engine: Any
    images: Any = None

    async def with_tokenizer(self) -> "Call":
        """The same call with the tokenizer itself, which our trainer sends by reference."""
        return replace(self, hf_tokenizer=await tokenizer_here(self.hf_tokenizer))


@dataclass(frozen=True)
class Drawn:
    """A group's trained rollouts, all that vote (the trained ones first), and the tokens that were generated for it.

    `logs` are the user's own agent's, one row for each trained rollout.
    """

    trained: list[HostRollout]
    responses: tuple[GroupResponse, ...]
    tokens: int
    entropies: tuple[float, ...] | None = None
    logs: Sequence[Mapping[str, float]] | None = None


class AgentExecutor(SingleTurnAgentExecutor):  # type: ignore[misc]
    """OpenRLHF's own single turn, or the trajectories of the user's own agent, whose reward is the group's.

    Under our entry point a rollout gets the expected reward, and the trainer reads A⁺ and A⁻ off extra_logs. Without
    it, the reward is the net advantage A⁺ + A⁻ (docs/journeys/integration.md). Evaluation is the host's own, graded.
    """

    def __init__(self) -> None:
        super().__init__()
        instrument.check_agent()
        config = config_of_agent(hooked=is_active())
        if not is_active():
            refuse_lost_rewards(trainers_command())
        self._method = build(config.method)
        self._scoring = scoring_of(config)
        self._carries = is_active() and config.keeps_rollouts
        self._groups: GroupGathering[HostRollout] = GroupGathering()
        self._unmarked = UnmarkedRows(config.evaluation)
        self._settings = config
        self._agent = None if config.agent is None else WrappedAgent(config.agent)
        if self._agent is not None and (reason := unfit_plan(self._method.rollouts)):
            raise ConfigError(reason)
        self._model: asyncio.Future[str] | None = None

    async def execute(self, **asked: Any) -> HostRollout:
        """One rollout of what is `asked` (Call), with the host's keys.

        Raises a RestrainError where its group cannot be scored.
        """
        call = Call(**asked)
        row = training_row(call)
        if row is None:
            return await self._evaluate(call)
        return await self._groups.member(call.sampling_params, call.prompt, lambda n: self._group(call, row, n))

    async def _group(self, call: Call, row: TrainingRow, n: int) -> list[HostRollout]:
        """The whole group: evaluation's graded one by one, training's scored as one."""
        drawn = EvaluationDraws.model_construct(temperature=float(call.sampling_params.temperature), n=n)
        if not is_active() and self._unmarked.are_evaluation(call.label, drawn, call.prompt):
            return await all_or_none([self._evaluate(call) for _ in range(n)])
        return await self._train(call, row, n)

    async def _evaluate(self, call: Call) -> HostRollout:
        output, text = await self._draw_evaluated(await call.with_tokenizer())
        label, kind = LabelWithRow.of(call.label), self._settings.answers
        row = kind.row(call.prompt, {}) if label.row is None else label.row
        grade = await scored_in_a_thread(partial(kind.grade, text, str(label.label), row))
        return {**output, "label": label.label, "reward": float(grade.correct), "scores": float(grade.correct)}

    async def _draw_evaluated(self, call: Call) -> tuple[HostRollout, str]:
        """A rollout with the text that is graded; of a trajectory that failed, none."""
        if self._agent is None:
            output = await self._draw_one(replace(call, sampling_params=without_text(call.sampling_params)))
            return output, texts_of([output], call.hf_tokenizer)[0]
        drawn = await self._agent.trajectory(vars(call))
        rollout: Any = {**drawn.output, "extra_logs": {}}
        return rollout, "" if drawn.error else drawn.text

    async def _train(self, call: Call, row: TrainingRow, n: int) -> list[HostRollout]:
        """The whole group, scored."""
        if n == 1:
            raise GroupError(
                f"OpenRLHF drew a single rollout for the prompt {call.prompt[:60]!r}, but a vote needs a group. Set "
                "rollout.n_samples_per_prompt to 2 or more (the paper uses 16)."
            )
        call = await call.with_tokenizer()
        needed = await self._needed(call, n)
        drawn = await (self._draw(call, row, n) if self._agent is None else self._draw_by(self._agent, call, row, n))
        request = group_request(call, row, drawn)
        score = await self._scoring.score(request, needed)
        rewards = score.rewards if is_active() else score.pair.net
        extras = extra_logs(request, score, row, drawn)
        carried = labels(ScoredGroup(request, score), n, self._carries)
        return [
            {**as_arrays(output), "reward": reward, "scores": expected, "label": label, "extra_logs": extra}
            for output, reward, expected, label, extra in zip(
                drawn.trained, rewards.tolist(), score.rewards.tolist(), carried, extras, strict=True
            )
        ]

    async def _needed(self, call: Call, n: int) -> NeededReference | None:
        """What the reference must be made with, as far as a rollout actor knows; None where the method reads none.

        Our entry point has compared the model and the template before anything started.
        """
        if not self._method.needs_reference:
            return None
        sampling = call.sampling_params
        return NeededReference(
            model_fingerprint=None if is_active() else await self._fingerprint(call.llm_engine),
            n=n,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_new_tokens=sampling.max_tokens or call.max_length,
            agent=self._settings.agent_identity,
        ).by(self._settings.reference_n, self._settings.reference_sampling)

    async def _fingerprint(self, engine: Any) -> str:
        """Of the model that the host's actor loaded, whose path is actor.model_name_or_path; read once."""
        if self._model is None:
            # The host's create_vllm_engines names it `model` (trainer/ray/vllm_engine.py).
            self._model = asyncio.ensure_future(asyncio.to_thread(model_fingerprint, str(engine.kwargs["model"])))
        return await asyncio.shield(self._model)

    async def _draw(self, call: Call, row: TrainingRow, n: int) -> Drawn:
        """The n trained rollouts in a single turn, and those of the method's plan where it has one."""
        asked = without_text(call.sampling_params)
        if is_active():
            # For the gap between these and the policy's (hook/policy/experience.py).
            asked.logprobs = asked.logprobs or 0
        plan, seed = self._plan(n), row.visit.seed if row.visit else None
        # A plan's requests have their places in it, and not in the order in which they come.
        engine = GroupEngine(call.llm_engine, seed if plan is None else None)
        planned = None if plan is None else PlannedEngine(engine, plan, seed)
        one = replace(call, sampling_params=asked, llm_engine=planned or engine)
        outputs = await all_or_none([self._draw_one(one) for _ in range(n)])
        chains = [] if planned is None else planned.drawn()
        known = any(chain.entropies for chain in chains)
        entropies = tuple(chain.mean_entropy for chain in chains[:n]) if known else None
        return Drawn(outputs, responses_of(outputs, chains[n:], call.hf_tokenizer), engine.tokens, entropies)

    async def _draw_by(self, agent: WrappedAgent, call: Call, row: TrainingRow, n: int) -> Drawn:
        """As `_draw`, by the user's own agent: a plan's voters are trajectories, too."""
        plan, seed = self._plan(n), row.visit.seed if row.visit else None
        drawn = await agent.group(vars(call), n if plan is None else plan.voters, seed, log_probs=is_active())
        responses = tuple(GroupResponse(text=each.text, finished=each.finished) for each in drawn)
        trained: list[Any] = [each.output for each in drawn[:n]]
        return Drawn(trained, responses, sum(each.generated for each in drawn), logs=agent_columns(drawn, n))

    def _plan(self, n: int) -> RolloutPlan | None:
        """The method's. Raises ConfigError where it trains on another number of rollouts than n."""
        plan = self._method.rollouts
        if plan is not None and (reason := other_size(plan, n)):
            raise ConfigError(reason)
        return plan

    async def _draw_one(self, call: Call) -> HostRollout:
        # Before 0.10.0 the host's executor takes no images.
        asked = {name: value for name, value in vars(call).items() if name != "images" or value is not None}
        rollout: HostRollout = await super().execute(**asked)
        return rollout


def training_row(call: Call) -> TrainingRow | None:
    """What to train with; None for evaluation.

    Under our entry point training prompts are marked. Without it nothing is, a label included:
    hook/rollout/unmarked_rows.py tells once the group is known. Raises HookNotActiveError where one of the two
    processes is hooked and the other is not.
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
    """The same parameters, for tokens alone, which is all that the host reads of a single turn.

    vLLM would turn every token into text as it comes, and each of the most likely ones whose log-probability is asked
    for: much of a rollout's time. `texts_of` decodes a whole response at once.
    """
    asked = deepcopy(sampling_params)
    asked.detokenize = False
    return asked


def texts_of(outputs: Sequence[HostRollout], tokenizer: Any) -> list[str]:
    """The responses' texts without special tokens."""
    spans = [(output["observation_tokens"], output["action_ranges"][0]) for output in outputs]
    return [tokenizer.decode(tokens[start:end], skip_special_tokens=True) for tokens, (start, end) in spans]


def as_arrays(rollout: HostRollout) -> HostRollout:
    """The same rollout with its tokens, and their log-probabilities, each in an array.

    The trainer makes a tensor of both (trainer/ppo_utils/samples_generator.py). Of a list that is a loop over Python's
    numbers, in the one process to which all rollouts come; of an array it is a copy, with the same values.
    """
    log_probs = rollout["rollout_log_probs"]
    return {
        **rollout,
        "observation_tokens": np.array(rollout["observation_tokens"], dtype=np.int64),
        "rollout_log_probs": None if log_probs is None else np.array(log_probs, dtype=np.float32),
    }


def responses_of(outputs: Sequence[HostRollout], voting: Sequence[Chain], tokenizer: Any) -> tuple[GroupResponse, ...]:
    """The trained rollouts first, then those of the plan that only vote."""
    decode = partial(tokenizer.decode, skip_special_tokens=True)
    texts = [*texts_of(outputs, tokenizer), *(decode(list(chain.tokens)) for chain in voting)]
    cut = [*(output["truncated"] for output in outputs), *(chain.is_truncated for chain in voting)]
    return tuple(GroupResponse(text=text, finished=not end) for text, end in zip(texts, cut, strict=True))


def group_request(call: Call, row: TrainingRow, drawn: Drawn) -> GroupRequest:
    """The group as it is scored."""
    own = None if row.row is None else dict(row.row)
    return GroupRequest(
        prompt=call.prompt, responses=drawn.responses, gold=row.gold, entropies=drawn.entropies, row=own
    )


def extra_logs(request: GroupRequest, score: GroupScore, row: TrainingRow, drawn: Drawn) -> list[dict[str, float]]:
    """The numbers that each trained rollout carries: its agent's, its own, and its group's.

    The hooked trainer takes the group's from the first rollout, and so the others do not carry them: the host makes a
    tensor of every number. Without the hook every rollout carries them, because the host wants the same names in all.
    """
    place = {} if row.visit is None else {PLACE: row.visit.place}
    scored = columns(request, score)
    logs = drawn.logs or [{}] * len(scored)
    rows = [{**own, **one, **place} for own, one in zip(logs, scored, strict=True)]
    group = vote_columns(request, score)
    if not is_active():
        return [{**each, **group} for each in rows]
    of_trainer = {MAJORITY: majority_digest(score.majority_key), GENERATED: drawn.tokens}
    return [{**rows[0], **group, **of_trainer}, *rows[1:]]
