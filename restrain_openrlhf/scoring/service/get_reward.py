"""POST /get_reward: rollouts wait in slots until their groups are scored, or are graded where that is asked for."""

import asyncio
import hashlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from restrain_openrlhf.errors import RestrainError
from restrain_openrlhf.method import GroupScore
from restrain_openrlhf.scoring import GroupScorer, wire
from restrain_openrlhf.scoring.service.group_collector import Group, GroupCollector, Reply, Slot
from restrain_openrlhf.scoring.service.requests import RefusedError, Response, read_body, read_response, refused
from restrain_openrlhf.scoring.service.service_config import ServiceBlock
from restrain_openrlhf.scoring.service.telemetry import Metrics, log
from restrain_openrlhf.scoring.threads import scored_in_a_thread
from restrain_openrlhf.scoring.wire import RewardReplies, RewardReply, RewardRequest

LOGS = (wire.POSITIVE, wire.NEGATIVE, wire.KL_WEIGHT, wire.PROMPT_WEIGHT, wire.PENALIZED)
NEUTRAL = RewardReply(rewards=0.0, scores=0.0, extra_logs=dict(zip(LOGS, (0.0, 0.0, 1.0, 1.0, 0.0), strict=True)))

LABELLED = (
    "The row has a label, and nothing says what it is. Training: set service.labelled_rows: vote; labels are ignored. "
    "Evaluation: set it to evaluate, which grades every row with a label, and leave the labels of the training file "
    "empty. For both in one run use the agent (docs/journeys/integration.md)."
)
OF_TRAINING = (
    "service.labelled_rows is evaluate, and a row with a label came {when}. OpenRLHF trains before it evaluates, and "
    "never both at a time, so this is a training row, and its gold would be trained on. Leave the labels of the "
    "training file empty, or set labelled_rows: vote; then start service and run again."
)
BEFORE_TRAINING = OF_TRAINING.format(when="before any without one")
AMONG_TRAINING = OF_TRAINING.format(when="while rollouts without one wait for their group")
IGNORED = "Rows have a label; it is ignored, they vote (service.labelled_rows: vote). Nothing is graded by gold."


@dataclass
class GetReward:
    """The endpoint. Each group is scored in a background task; `stopping` is what requests get at the end."""

    block: ServiceBlock
    scorer: GroupScorer
    metrics: Metrics
    stopping: RestrainError | None = None
    waiting: int = field(default=0, init=False)
    has_trained: bool = field(default=False, init=False)
    unsure: str | None = field(default=None, init=False)
    has_warned: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        ends = self.block.end_of_text or ()
        self.ends = (ends,) if isinstance(ends, str) else ends
        size, timing = self.block.group_size or 0, self.block.timing
        self.collector = GroupCollector(size, timing, lambda group: asyncio.create_task(self._score(group)))

    async def serve(self, request: Request) -> RewardReply | RewardReplies:
        """The reply. Raises a RestrainError where there is none to give, for all of a request's rollouts.

        Nothing here keeps the body while the request waits: a pending rollout costs its answer's memory.
        """
        if self.block.group_size is None:
            detail = "This service scores whole groups (POST /v1/score). Set service.group_size to turn /get_reward on."
            raise RefusedError(404, detail)
        rollouts = (await read_body(request, RewardRequest, self.block)).rollouts
        if len({rollout.gold is None for rollout in rollouts}) > 1 and self.block.labelled_rows == "evaluate":
            self.unsure = self.unsure or AMONG_TRAINING
        begun: list[RewardReply | Slot] = []
        try:
            for rollout in rollouts:
                begun.append(await self._begin(*rollout))
            replies = await self._wait(begun, request.receive)
        except BaseException:
            for slot in begun:
                if isinstance(slot, Slot):
                    self.collector.leave(slot, time.monotonic())
            raise
        return replies[0] if len(replies) == 1 else RewardReplies.of(replies)

    async def _begin(self, query: str, prompt: str, gold: str | None) -> RewardReply | Slot:
        if gold is not None and not self.scorer.method.reads_gold and self._is_evaluation():
            return await self._grade(query, prompt, gold)
        self.scorer.check(prompt, gold)
        response = await asyncio.to_thread(self._read, query, prompt)
        if self.stopping is not None:
            raise self.stopping
        self.has_trained = True
        key = (prompt, gold if self.scorer.method.reads_gold else None)
        slot = self.collector.arrive(key, hashlib.sha256(query.encode()).hexdigest(), response, time.monotonic())
        self.metrics.slots.labels(slot.kind).inc()
        return slot

    def _is_evaluation(self) -> bool:
        """Whether a row with a label is graded. Raises RefusedError where nothing says so, or training would be.

        OpenRLHF trains before it evaluates, and has all rewards of a batch before it goes on (trainer/ppo_trainer.py,
        fit; trainer/ppo_trainer_async.py, fit): of two rows at a time, both are training's. Once it was seen that
        training's rows have labels, none is graded any more.
        """
        choice = self.block.labelled_rows
        if choice == "evaluate":
            seen = None if self.has_trained else BEFORE_TRAINING
            self.unsure = self.unsure or (AMONG_TRAINING if self.waiting else seen)
        reason = LABELLED if choice == "refuse" else self.unsure
        if reason is not None:
            # OpenRLHF's client does not log what it is told.
            self._warn_once(reason)
            raise RefusedError(409, reason)
        if choice == "vote":
            self._warn_once(IGNORED)
        return choice == "evaluate"

    def _warn_once(self, what: str) -> None:
        if not self.has_warned:
            self.has_warned = True
            log("labels", logging.WARNING, detail=what)

    async def _grade(self, query: str, prompt: str, gold: str) -> RewardReply:
        correct = await scored_in_a_thread(partial(self._is_right, query, prompt, gold))
        self.metrics.evaluated.labels(str(correct).lower()).inc()
        return RewardReply(rewards=float(correct), scores=float(correct))

    def _read(self, query: str, prompt: str) -> Response:
        return read_response(query, prompt, self.ends, self.scorer.kind, self.scorer.row_of(prompt))

    def _is_right(self, query: str, prompt: str, gold: str) -> bool:
        return self.scorer.kind.is_right(self._read(query, prompt).answer, gold, self.scorer.row_of(prompt))

    async def _wait(self, begun: Sequence[RewardReply | Slot], receive: Receive) -> list[RewardReply]:
        """Until all replies are there, the client is gone, the hold is over or the service stops."""
        slots = [each for each in begun if isinstance(each, Slot)]
        if slots:
            await self._until_answered(slots, receive)
        for slot in slots:
            self.collector.answered(slot)
        replies = [each.reply.result() if isinstance(each, Slot) else each for each in begun]
        return [self._given(reply) for reply in replies]

    async def _until_answered(self, slots: Sequence[Slot], receive: Receive) -> None:
        gone = asyncio.ensure_future(_disconnected(receive))
        replies = asyncio.gather(*(slot.reply for slot in slots))
        self.waiting += 1
        try:
            await asyncio.wait((replies, gone), timeout=self.block.timing.hold, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                self.metrics.gone.inc()
                raise ClientDisconnect
            if not replies.done():
                self.metrics.held.inc()
                raise RefusedError(409, "The group is not complete yet; the rollout keeps its slot.", again=True)
        finally:
            self.waiting -= 1
            gone.cancel()

    def _given(self, reply: Reply) -> RewardReply:
        if isinstance(reply, RestrainError):
            raise reply
        self.metrics.neutral.inc(reply is NEUTRAL)
        return reply

    async def _score(self, group: Group) -> None:
        (prompt, gold), responses = group.key, [slot.response for slot in group.slots if slot.response is not None]
        answers = [None if response.truncated else response.answer for response in responses]
        outcome = "full" if len(answers) == self.block.group_size else "partial"
        try:
            work = partial(self.scorer.score, prompt, answers, gold)
            scored = await self.metrics.scored(work, sum(response.truncated for response in responses), outcome)
            replies = [self._reply(scored, index) for index in range(len(answers))]
            self.collector.finish(group, replies, NEUTRAL, time.monotonic())
        except Exception as error:  # noqa: BLE001 - the group's requests wait for a reply, whatever went wrong
            self.collector.finish(group, [], refused(error), time.monotonic())

    def _reply(self, group: GroupScore, index: int) -> RewardReply:
        pair = float(group.pair.positive[index]), float(group.pair.negative[index])
        reward = sum(pair) if self.block.reward == "net_advantage" else float(group.rewards[index])
        values = (*pair, group.kl_weight, group.prompt_weight, float(group.penalized))
        return RewardReply(rewards=reward, scores=reward, extra_logs=dict(zip(LOGS, values, strict=True)))

    def stop(self) -> None:
        """Whoever waits, waits no longer."""
        self.stopping = RefusedError(503, "The service is stopping.", again=True)
        for slot in [slot for groups in self.collector.groups.values() for group in groups for slot in group.slots]:
            slot.give(self.stopping)


async def _disconnected(receive: Receive) -> None:
    """Returns once the client closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
