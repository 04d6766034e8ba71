"""Gathers single rollouts into groups of one prompt: plain code without a clock, a thread or a network of its own."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from restrain_openrlhf.errors import RestrainError
from restrain_openrlhf.scoring.service.requests import Response
from restrain_openrlhf.scoring.service.service_config import Timing
from restrain_openrlhf.scoring.wire import RewardReply

Reply = RewardReply | RestrainError
# What the rollouts of one group have in common: the prompt, and gold where the method reads it.
Key = tuple[str, str | None]


@dataclass(eq=False)
class Slot:
    """One rollout's place in its group. `text` is the digest of its query, None if it had not come by the deadline.

    While no request waits for the reply, the slot is vacant. A vacant slot is given up at the time `until` (seconds of
    the monotonic clock).
    """

    group: "Group"
    text: str | None = None
    response: Response | None = None
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

    key: Key
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
    groups: dict[Key, list[Group]] = field(default_factory=dict)

    def arrive(self, key: Key, text: str, response: Response, now: float) -> Slot:
        """The slot of a request.

        A retry carries the same text as its first try, and so may a second rollout. The connection of the first try
        tells them apart, because a client closes it before it tries again. So a request takes a vacant slot with its
        text if there is one, and otherwise a slot of its own.
        """
        self.sweep(key, now)
        vacant = [slot for group in self.groups.get(key, ()) for slot in group.slots if slot.vacant]
        for slot in (slot for wanted in (text, None) for slot in vacant if slot.text == wanted):
            slot.kind = "late" if slot.text is None else "retry"
            slot.vacant, slot.text = False, text
            return slot
        groups = self.groups.setdefault(key, [])
        if not groups or groups[-1].size is not None:
            groups.append(Group(key, now))
        slot = Slot(groups[-1], text, response, vacant=False)
        slot.group.slots.append(slot)
        if len(slot.group.slots) == self.n:
            self._close(slot.group)
        return slot

    def leave(self, slot: Slot, now: float) -> None:
        """The slot's client went away without the reply. From now on a retry may take the slot."""
        slot.vacant, slot.until = True, now + self.timing.retake

    def answered(self, slot: Slot) -> None:
        """The slot's client has the reply, so the slot is no longer needed."""
        slot.group.slots.remove(slot)

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

    def sweep(self, key: Key, now: float) -> None:
        """Apply what time has changed for a prompt: give up slots without a client, and score overdue groups."""
        groups = self.groups.pop(key, [])
        for group in groups:
            if group.size is None or all(slot.reply.done() for slot in group.slots):
                group.slots = [slot for slot in group.slots if not slot.vacant or slot.until >= now]
            if group.size is None and group.slots and now - group.opened >= self.timing.deadline:
                self._close(group)
        if left := [group for group in groups if group.slots]:
            self.groups[key] = left
