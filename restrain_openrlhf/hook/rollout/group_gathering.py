"""Gathers the rollouts of one prompt: OpenRLHF asks for each by itself, all of them at the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from restrain_openrlhf.errors import GroupError

T = TypeVar("T")
Draw = Callable[[int], Awaitable[Sequence[T]]]


@dataclass
class _Group(Generic[T]):
    """`shared` is kept so that its id stays its own; `outcome` is None while members still join."""

    shared: object
    prompt: str
    size: int = 0
    outcome: "asyncio.Future[Sequence[T]] | None" = None

    def fail(self) -> None:
        """No member gets a rollout any more."""
        if self.outcome is None:
            self.outcome = asyncio.get_running_loop().create_future()
        self.outcome.cancel()


class GroupGathering(Generic[T]):
    """The groups that are being drawn in this process.

    RolloutRayActor.generate_responses (trainer/ray/vllm_engine.py) starts all rollouts of a prompt before any of them
    goes on, and hands all of them the same sampling parameters, one object, which is the group's identity
    (hook/install/instrument.py checks both).
    """

    def __init__(self) -> None:
        self._joining: dict[int, _Group[T]] = {}

    async def member(self, shared: object, prompt: str, draw: Draw[T]) -> T:
        """This member's rollout. `draw(n)` is called once for the group, and gives as many rollouts in their order.

        Whatever `draw` raises, every member raises. Raises GroupError where two prompts share their parameters, and in
        the other members where one is cancelled.
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
            # All members of the group have been started before this one goes on.
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
        """Whoever comes later with the same parameters is another group."""
        if self._joining.get(id(group.shared)) is group:
            del self._joining[id(group.shared)]


async def all_or_none(rollouts: Sequence[Awaitable[Any]]) -> list[Any]:
    """All of them, at the same time; where one fails the others are ended, and its error is raised."""
    tasks = [asyncio.ensure_future(rollout) for rollout in rollouts]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
