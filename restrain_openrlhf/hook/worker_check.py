"""Wraps RayActorGroup.async_init_model_from_pretrained: before any model loads, every process says it is hooked."""

from collections.abc import Callable
from typing import Any

import ray

from restrain_openrlhf.errors import HookNotActiveError


def init_model(wrapped: Callable[..., Any], group: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Raises HookNotActiveError if any process of the group (trainer/ray/launcher.py) runs the host unhooked."""
    answers = ray.get([actor.__ray_call__.remote(report) for actor in group._actor_handlers])
    unhooked = sum(not hooked for hooked in answers)
    if unhooked:
        raise HookNotActiveError(
            f"{unhooked} of {len(answers)} {group.ray_actor_type.__ray_metadata__.class_name} processes run without "
            "the RESTRAIN hook."
        )
    return wrapped(*args, **kwargs)


def report(_actor: object) -> bool:
    """Runs inside an actor process: whether the host's classes are wrapped there."""
    from restrain_openrlhf.hook.instrument import is_active  # noqa: PLC0415 - must be asked of that process

    return is_active()
