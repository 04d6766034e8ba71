"""Gathers the rollouts of one prompt, for which OpenRLHF asks one by one, but all at the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from restrain_openrlhf.errors import GroupError

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
    continues, and hands all of them the same object of sampling parameters, which identifies the group
    (hook/install/instrument.py checks both).
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
