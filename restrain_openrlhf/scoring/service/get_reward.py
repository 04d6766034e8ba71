"""POST /get_reward: each rollout waits in a slot until its group is scored.

The collector of groups is plain code without a clock, a thread or a network of its own.
"""

import asyncio
import hashlib
import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from restrain_openrlhf.errors import DataError, RestrainError
from restrain_openrlhf.method import GroupScore
from restrain_openrlhf.scoring import GroupScorer, score_whole_group, wire
from restrain_openrlhf.scoring.service.requests import Metrics, RefusedError, log, read_body, refused
from restrain_openrlhf.scoring.service.service_config import ServiceBlock, Timing
from restrain_openrlhf.scoring.wire import GroupRequest, GroupResponse, RewardReply, RewardRequest

Reply = RewardReply | RestrainError
LOGS = (wire.POSITIVE, wire.NEGATIVE, wire.KL_WEIGHT, wire.PROMPT_WEIGHT, wire.PENALIZED)
NEUTRAL = RewardReply(rewards=0.0, scores=0.0, extra_logs=dict(zip(LOGS, (0.0, 0.0, 1.0, 1.0, 0.0), strict=True)))

LABELS_REFUSED = (
    "The row has a label, and the service does not grade. If this is training, leave data.label_key out. To evaluate, "
    "leave eval.dataset out and use `restrain eval`, or train with the agent, which grades evaluation by its labels "
    "(docs/journeys/integration.md)."
)
# Characters of a prompt's end that must be in the query where the host has cut or changed the prompt's beginning.
PROMPT_END = 200


def read_response(query: str, prompt: str, ends: tuple[str, ...]) -> GroupResponse:
    """The response in a query, which is the prompt and the response in one text.

    Raises DataError if the query does not begin with its prompt.

    The client does not say whether a response is truncated. A response that ended by itself ends with one of `ends`,
    because the client decodes with skip_special_tokens=False; every other one hit the length limit.
    """
    # The host cuts the beginning off a prompt that is too long.
    known = prompt if query.startswith(prompt) else prompt[-PROMPT_END:]
    _, found, response = query.partition(known) if known else ("", True, query)
    if not found:
        what = "The query does not begin with its prompt: the tokenizer changes the prompt's text when it encodes and"
        raise DataError(f"{what} decodes it. Use one that does not.")
    marks = "|".join(map(re.escape, sorted(ends, key=len, reverse=True)))
    plain = re.sub(marks, "", response) if marks else response
    return GroupResponse(text=plain, finished=not ends or response.endswith(ends))


@dataclass(eq=False)
class Slot:
    """One rollout's place in its group. `text` is the digest of its query, None if it had not come by the deadline.

    While no request waits for the reply, the slot is vacant. A vacant slot is given up at the time `until` (seconds of
    the monotonic clock).
    """

    group: "Group"
    text: str | None = None
    response: GroupResponse | None = None
    vacant: bool = True
    until: float = 0.0
    reply: "asyncio.Future[Reply]" = field(default_factory=asyncio.Future)
    kind: Literal["first", "retry", "late"] = "first"

    def give(self, reply: Reply) -> None:
        """Set the reply. A request that waits gets it; otherwise it is kept for the retry."""
        if not self.reply.done():
            self.reply.set_result(reply)


@dataclass(eq=False)
class Group:
    """Up to n rollouts of one prompt. `size` is how many of the slots are scored, and None while the group gathers."""

    prompt: str
    opened: float
    slots: list[Slot] = field(default_factory=list)
    size: int | None = None
    scoring: object = None


@dataclass
class GroupCollector:
    """All groups of all prompts. `score` is called once for each group, when it is whole or its deadline passes."""

    n: int
    timing: Timing
    score: Callable[[Group], object]
    groups: dict[str, list[Group]] = field(default_factory=dict)

    def arrive(self, prompt: str, text: str, response: GroupResponse, now: float) -> Slot:
        """The slot of a request.

        A retry carries the same text as its first try, and so may a second rollout. The connection of the first try
        tells them apart, because a client closes it before it tries again. So a request takes a vacant slot with its
        text if there is one, and otherwise a slot of its own.
        """
        self.sweep(prompt, now)
        vacant = [slot for group in self.groups.get(prompt, ()) for slot in group.slots if slot.vacant]
        for slot in (slot for wanted in (text, None) for slot in vacant if slot.text == wanted):
            slot.kind = "late" if slot.text is None else "retry"
            slot.vacant, slot.text = False, text
            return slot
        groups = self.groups.setdefault(prompt, [])
        if not groups or groups[-1].size is not None:
            groups.append(Group(prompt, now))
        slot = Slot(groups[-1], text, response, vacant=False)
        slot.group.slots.append(slot)
        if len(slot.group.slots) == self.n:
            self._close(slot.group)
        return slot

    def leave(self, slot: Slot, now: float) -> None:
        """The slot's client went away without the reply. From now on a retry may take the slot."""
        slot.vacant, slot.until = True, now + self.timing.retake

    def _close(self, group: Group) -> None:
        # Sort by the digests of the texts, so that ties of the vote do not depend on which rollout came first.
        group.slots.sort(key=lambda slot: slot.text or "")
        group.size = len(group.slots)
        group.slots += [Slot(group) for _ in range(self.n - group.size)]
        group.scoring = self.score(group)

    def finish(self, group: Group, replies: Sequence[Reply], late: Reply, now: float) -> None:
        """Give the group's slots their replies, in order.

        Slots beyond these get `late`, also those of rollouts yet to come.
        """
        for index, slot in enumerate(group.slots):
            slot.until = now + (self.timing.keep if slot.text is None else self.timing.retake)
            slot.give(replies[index] if index < len(replies) else late)

    def sweep(self, prompt: str, now: float) -> None:
        """Apply what time has changed for a prompt: give up slots without a client, and score overdue groups."""
        groups = self.groups.pop(prompt, [])
        for group in groups:
            if group.size is None or all(slot.reply.done() for slot in group.slots):
                group.slots = [slot for slot in group.slots if not slot.vacant or slot.until >= now]
            if group.size is None and group.slots and now - group.opened >= self.timing.deadline:
                self._close(group)
        if left := [group for group in groups if group.slots]:
            self.groups[prompt] = left


@dataclass
class GetReward:
    """The endpoint. A background task scores each group. Once `stopping` is set, all requests get it as their reply."""

    block: ServiceBlock
    scorer: GroupScorer
    metrics: Metrics
    stopping: RestrainError | None = None
    has_warned: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        ends, score = self.block.end_of_text, lambda group: asyncio.create_task(self._score(group))
        self.ends = (ends,) if isinstance(ends, str) else ends
        self.collector = GroupCollector(self.block.group_size, self.block.timing, score)

    async def serve(self, request: Request) -> RewardReply:
        """The reply to a rollout. Raises a RestrainError if there is none to give.

        Nothing here keeps the body while the request waits, so a pending rollout only costs the memory of its text.
        """
        slot = await self._begin(await read_body(request, self.block))
        try:
            reply = await self._wait(slot, request.receive)
        except BaseException:
            self.collector.leave(slot, time.monotonic())
            raise
        if isinstance(reply, RestrainError):
            raise reply
        self.metrics.neutral.inc(reply is NEUTRAL)
        return reply

    async def _begin(self, body: RewardRequest) -> Slot:
        (query,), (prompt,), (label,) = body.query, body.prompts, body.labels
        if label not in ("", None):
            # OpenRLHF's client does not log a refusal, so the service does, once.
            if not self.has_warned:
                log("labels", logging.WARNING, detail=LABELS_REFUSED)
            self.has_warned = True
            raise RefusedError(409, LABELS_REFUSED)
        self.scorer.check(prompt)
        response = read_response(query, prompt, self.ends)
        if self.stopping is not None:
            raise self.stopping
        slot = self.collector.arrive(prompt, hashlib.sha256(query.encode()).hexdigest(), response, time.monotonic())
        self.metrics.slots.labels(slot.kind).inc()
        return slot

    async def _wait(self, slot: Slot, receive: Receive) -> Reply:
        """Wait until the reply is there, the client is gone, `timing.hold` is over or the service stops."""
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait((slot.reply, gone), timeout=self.block.timing.hold, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        if gone.done() and not gone.cancelled():
            self.metrics.gone.inc()
            raise ClientDisconnect
        if not slot.reply.done():
            self.metrics.held.inc()
            raise RefusedError(409, "The group is not complete yet; the rollout keeps its slot.", again=True)
        # The client has the reply, so the slot is no longer needed.
        slot.group.slots.remove(slot)
        return slot.reply.result()

    async def _score(self, group: Group) -> None:
        responses = tuple(slot.response for slot in group.slots if slot.response is not None)
        outcome = "full" if len(responses) == self.block.group_size else "partial"
        try:
            work = partial(score_whole_group, self.scorer, GroupRequest(prompt=group.prompt, responses=responses))
            scored = await self.metrics.scored(work, sum(not each.finished for each in responses), outcome)
            replies = [self._reply(scored, index) for index in range(len(responses))]
            self.collector.finish(group, replies, NEUTRAL, time.monotonic())
        except Exception as error:  # noqa: BLE001 - the group's requests wait for a reply, whatever went wrong
            self.collector.finish(group, [], refused(error), time.monotonic())

    def _reply(self, group: GroupScore, index: int) -> RewardReply:
        pair = float(group.pair.positive[index]), float(group.pair.negative[index])
        values = (*pair, group.kl_weight, group.prompt_weight, float(group.penalized))
        return RewardReply(rewards=sum(pair), scores=sum(pair), extra_logs=dict(zip(LOGS, values, strict=True)))

    def stop(self) -> None:
        """Release all requests that wait, with the reply that they should ask again."""
        self.stopping = RefusedError(503, "The service is stopping.", again=True)
        for slot in [slot for groups in self.collector.groups.values() for group in groups for slot in group.slots]:
            slot.give(self.stopping)


async def _disconnected(receive: Receive) -> None:
    """Return when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
