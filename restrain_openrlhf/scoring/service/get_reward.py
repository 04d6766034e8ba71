"""POST /get_reward: each rollout waits in a slot until its group is scored."""

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
from restrain_openrlhf.scoring.wire import RewardReplies, RewardReply, RewardRequest

LOGS = (wire.POSITIVE, wire.NEGATIVE, wire.KL_WEIGHT, wire.PROMPT_WEIGHT, wire.PENALIZED)
NEUTRAL = RewardReply(rewards=0.0, scores=0.0, extra_logs=dict(zip(LOGS, (0.0, 0.0, 1.0, 1.0, 0.0), strict=True)))

LABELS_REFUSED = (
    "The row has a label, and the service is not told what to do with it. If this is training, set "
    "service.labelled_rows: vote, which ignores labels. This service does not grade evaluation: leave eval.dataset "
    "out and use `restrain eval`, or train with the agent, which grades evaluation by its labels "
    "(docs/journeys/integration.md)."
)
LABELS_IGNORED = (
    "Rows have a label, which is ignored: they vote (service.labelled_rows: vote). Nothing is graded by gold."
)


@dataclass
class GetReward:
    """The endpoint. A background task scores each group. Once `stopping` is set, all requests get it as their reply."""

    block: ServiceBlock
    scorer: GroupScorer
    metrics: Metrics
    stopping: RestrainError | None = None
    has_warned: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        ends = self.block.end_of_text or ()
        self.ends = (ends,) if isinstance(ends, str) else ends
        size, timing = self.block.group_size or 0, self.block.timing
        self.collector = GroupCollector(size, timing, lambda group: asyncio.create_task(self._score(group)))

    async def serve(self, request: Request) -> RewardReply | RewardReplies:
        """The reply to all rollouts of a request. Raises a RestrainError if there is none to give.

        Nothing here keeps the body while the request waits, so a pending rollout only costs the memory of its answer.
        """
        if self.block.group_size is None:
            detail = "This service scores whole groups (POST /v1/score). Set service.group_size to turn /get_reward on."
            raise RefusedError(404, detail)
        begun: list[Slot] = []
        try:
            for rollout in (await read_body(request, RewardRequest, self.block)).rollouts:
                begun.append(await self._begin(*rollout))
            replies = await self._wait(begun, request.receive)
        except BaseException:
            for slot in begun:
                self.collector.leave(slot, time.monotonic())
            raise
        return replies[0] if len(replies) == 1 else RewardReplies.of(replies)

    async def _begin(self, query: str, prompt: str, gold: str | None) -> Slot:
        if gold is not None and not self.scorer.method.reads_gold:
            self._refuse_labels()
        self.scorer.check(prompt, gold)
        response = await asyncio.to_thread(self._read, query, prompt)
        if self.stopping is not None:
            raise self.stopping
        key = (prompt, gold if self.scorer.method.reads_gold else None)
        slot = self.collector.arrive(key, hashlib.sha256(query.encode()).hexdigest(), response, time.monotonic())
        self.metrics.slots.labels(slot.kind).inc()
        return slot

    def _refuse_labels(self) -> None:
        """Raises RefusedError unless the configuration says to ignore labels. Either case is logged once."""
        is_refused = self.block.labelled_rows == "refuse"
        if not self.has_warned:
            self.has_warned = True
            # OpenRLHF's client does not log a refusal, so the service does.
            log("labels", logging.WARNING, detail=LABELS_REFUSED if is_refused else LABELS_IGNORED)
        if is_refused:
            raise RefusedError(409, LABELS_REFUSED)

    def _read(self, query: str, prompt: str) -> Response:
        return read_response(query, prompt, self.ends, self.scorer.kind, self.scorer.row_of(prompt))

    async def _wait(self, slots: Sequence[Slot], receive: Receive) -> list[RewardReply]:
        """Wait until all replies are there, the client is gone, `timing.hold` is over or the service stops."""
        gone = asyncio.ensure_future(_disconnected(receive))
        replies = asyncio.gather(*(slot.reply for slot in slots))
        try:
            await asyncio.wait((replies, gone), timeout=self.block.timing.hold, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                self.metrics.gone.inc()
                raise ClientDisconnect
            if not replies.done():
                self.metrics.held.inc()
                raise RefusedError(409, "The group is not complete yet; the rollout keeps its slot.", again=True)
        finally:
            gone.cancel()
        for slot in slots:
            self.collector.answered(slot)
        return [self._given(slot.reply.result()) for slot in slots]

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
        """Release all requests that wait, with the reply that they should ask again."""
        self.stopping = RefusedError(503, "The service is stopping.", again=True)
        for slot in [slot for groups in self.collector.groups.values() for group in groups for slot in group.slots]:
            slot.give(self.stopping)


async def _disconnected(receive: Receive) -> None:
    """Return when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
