"""The tokenizer on its way to the rollout actors: stored in Ray once, and loaded once in each actor's process.

OpenRLHF pickles the tokenizer into the call of every prompt (trainer/ppo_utils/samples_generator.py), and the actor
loads it as often: a tenth of a second of the trainer's time and half a second of the actor's for each prompt.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import ray


@dataclass(frozen=True)
class SentTokenizer:
    """Stands for the tokenizer in a prompt's call: a reference to the whole object, with all that was set on it."""

    stored: ray.ObjectRef


# Of each tokenizer of this process. It is stored as it is when the first prompts are sent.
_SENT: WeakKeyDictionary[object, SentTokenizer] = WeakKeyDictionary()


@contextmanager
def tokenizer_by_reference(generator: Any) -> Iterator[None]:
    """Within the block, the host's SamplesGenerator sends a SentTokenizer in the place of its tokenizer."""
    whole = generator.tokenizer
    if whole not in _SENT:
        _SENT[whole] = SentTokenizer(ray.put(whole))
    generator.tokenizer = _SENT[whole]
    try:
        yield
    finally:
        generator.tokenizer = whole


async def tokenizer_here(sent: Any) -> Any:
    """The tokenizer that was sent, one object for all prompts of this process; any other object is given back."""
    return await asyncio.shield(_arriving(sent.stored)) if isinstance(sent, SentTokenizer) else sent


@cache
def _arriving(stored: ray.ObjectRef) -> asyncio.Future[Any]:
    """One future for all rollouts that ask while the tokenizer is still being loaded."""
    return asyncio.ensure_future(_loaded(stored))


async def _loaded(stored: ray.ObjectRef) -> Any:
    return await stored
