"""The reference policy of a LoRA run: the policy's own base model with the adapter off, instead of a second copy.

This can go when the host does so itself (trainer/ppo_utils/experience_maker.py, RemoteExperienceMaker).
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any


def dispatch_forward(wrapped: Callable[..., Any], maker: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """RemoteExperienceMaker._dispatch_forward: in a LoRA run, what is for the reference policy goes to the policy."""
    group, *rest = args
    if group is maker.initial_model_group and maker.args.ds.lora.rank > 0:
        group = without_adapter(maker.actor_model_group)
    return wrapped(group, *rest, **kwargs)


def without_adapter(group: Any) -> Any:
    """The policy's group as the host sends it batches (trainer/ray/launcher.py), which run with the adapter off."""
    plain = copy.copy(group)
    plain._actor_handlers = [_WithoutAdapter(actor) for actor in group._actor_handlers]
    return plain


@dataclass(frozen=True)
class _WithoutAdapter:
    """A policy process's handle."""

    actor: Any

    @property
    def execute_batch(self) -> Any:
        return SimpleNamespace(remote=partial(self.actor.__ray_call__.remote, run_without_adapter))

    @property
    def empty_cache(self) -> Any:
        return self.actor.empty_cache


def run_without_adapter(actor: Any, method: str, data: Any, start: int, end: int) -> Any:
    """Inside a policy process: BaseModelActor.execute_batch with the base model alone."""
    with actor.strategy._unwrap_model(actor.actor).disable_adapter():
        return actor.execute_batch(method, data, start, end)
