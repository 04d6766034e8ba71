"""Where the prompts' states are kept: what any store must do, and the store in this process's own memory."""

import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from restrain_openrlhf.errors import RestrainError
from restrain_openrlhf.reward.seats import Moment, PromptState

# A change of one prompt's state. It may be called again where another replica was quicker, so it has no effects.
Change = Callable[[PromptState, Moment], PromptState]


class StoreError(RestrainError):
    """The shared store cannot be reached, or refused."""


class Store(Protocol):
    """Prompts' states by key, shared by all replicas. Every method may raise StoreError."""

    async def update(self, key: str, change: Change) -> PromptState:
        """Apply the change atomically; the state after it."""

    async def look(self, keys: Collection[str]) -> tuple[Mapping[str, PromptState], Moment]:
        """The states of these keys (an unknown one is empty), and the moment they were read at."""

    async def kept(self) -> Collection[str]:
        """Keys that this process must sweep although no request of its own waits on them."""

    async def announce(self, key: str) -> None:
        """Tell the other replicas that this key has a result."""

    def announcements(self) -> AsyncIterator[str]:
        """Keys that any replica announced, as they come."""

    async def beat(self, replica: str) -> None:
        """Show that this replica lives."""

    async def farewell(self, replica: str) -> None:
        """This replica ends, and holds no connection any more."""

    async def close(self) -> None:
        """Release what the store holds open."""


@dataclass
class MemoryStore:
    """One process's own states. A change is applied without a pause, so nothing can come between."""

    states: dict[str, PromptState] = field(default_factory=dict)

    async def update(self, key: str, change: Change) -> PromptState:
        """As in Store."""
        state = change(self.states.get(key, PromptState()), Moment(time.monotonic()))
        if state.groups:
            self.states[key] = state
        else:
            self.states.pop(key, None)
        return state

    async def look(self, keys: Collection[str]) -> tuple[Mapping[str, PromptState], Moment]:
        """As in Store."""
        return {key: self.states.get(key, PromptState()) for key in keys}, Moment(time.monotonic())

    async def kept(self) -> Collection[str]:
        """All of them: nothing else forgets them."""
        return list(self.states)

    async def announce(self, key: str) -> None:
        """There is no other replica."""

    async def announcements(self) -> AsyncIterator[str]:
        """None ever comes."""
        return
        yield

    async def beat(self, replica: str) -> None:
        """There is no other replica to see it."""

    async def farewell(self, replica: str) -> None:
        """There is no other replica to see it."""

    async def close(self) -> None:
        """Nothing is open."""
