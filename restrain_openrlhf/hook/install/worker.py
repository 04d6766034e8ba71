"""The set-up of Ray's workers in a hooked run, and the check that every model process has had it."""

from collections.abc import Callable, Sequence
from typing import Any

import ray

from restrain_openrlhf.config.gpu_layout import optimizer_steps
from restrain_openrlhf.errors import HookNotActiveError
from restrain_openrlhf.hook.install.environment import config_here
from restrain_openrlhf.hook.install.instrument import install, is_active, unpatched
from restrain_openrlhf.machine.devices import detect

SETUP_HOOK = "restrain_openrlhf.hook.install.worker.setup"


def setup() -> None:
    """Prepare this worker's accelerator and install the hook. Host modules are patched when they are imported."""
    detect().install()
    install()


def init_model(wrapped: Callable[..., Any], group: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Start loading a group's models (trainer/ray/launcher.py) once all of its processes are known to be hooked.

    The processes of a LoRA run's reference policy are ended, because that policy is the trained one without its adapter
    (hook/fixes/lora.py). The learning rate is planned for the steps that will be taken. Raises HookNotActiveError if
    a process lacks the hook or a part of it.
    """
    answers = ray.get([actor.__ray_call__.remote(report) for actor in group._actor_handlers])
    name, unhooked = group.ray_actor_type.__ray_metadata__.class_name, sum(answer is None for answer in answers)
    if unhooked:
        raise HookNotActiveError(f"{unhooked} of {len(answers)} {name} processes run without the RESTRAIN hook.")
    missing = sorted({method for answer in answers for method in answer})
    if missing:
        raise HookNotActiveError(f"The RESTRAIN hook is on in {name} processes, but not in {', '.join(missing)}.")
    strategy, model, *planned = args
    if name == "ReferenceModelActor" and strategy.args.ds.lora.rank > 0:
        # The host starts these processes wherever there is a KL term; they have not loaded a model yet.
        for actor in group._actor_handlers:
            ray.kill(actor)
        return []
    return wrapped(strategy, model, *steps_to_plan(strategy, planned), **kwargs)


def steps_to_plan(strategy: Any, planned: Sequence[Any]) -> list[Any]:
    """The arguments after the model's name (trainer/ray/ppo_actor.py, init_model_from_pretrained), with fewer steps.

    The first of them is the number of optimizer steps; where the run ends after `steps`, it is lowered to that.
    """
    steps = config_here().steps
    if not planned or steps is None:
        return list(planned)
    return [min(planned[0], optimizer_steps(steps, strategy.args)), *planned[1:]]


def report(_actor: object) -> list[str] | None:
    """Runs in an actor process: the host's methods that lack their patch, or None if the hook is not on at all."""
    return unpatched() if is_active() else None
