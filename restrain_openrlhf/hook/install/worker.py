"""Ray's workers in a hooked run: what each does before anything else, and the check that it did."""

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
    """Prepare this worker's accelerator, then hook it. Host modules are touched only when they are imported."""
    detect().install()
    install()


def init_model(wrapped: Callable[..., Any], group: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Raises HookNotActiveError if a process of the group (trainer/ray/launcher.py) lacks the hook or a part of it.

    A LoRA run's reference policy is the policy without its adapter (hook/fixes/lora.py), and needs no
    processes. The learning rate is
    planned for the steps that will be taken.
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
        # The host makes them wherever there is a KL term; they have not loaded a model yet.
        for actor in group._actor_handlers:
            ray.kill(actor)
        return []
    return wrapped(strategy, model, *steps_to_plan(strategy, planned), **kwargs)


def steps_to_plan(strategy: Any, planned: Sequence[Any]) -> list[Any]:
    """What follows the model's name (trainer/ray/ppo_actor.py, init_model_from_pretrained): optimizer steps first."""
    steps = config_here().steps
    if not planned or steps is None:
        return list(planned)
    return [min(planned[0], optimizer_steps(steps, strategy.args)), *planned[1:]]


def report(_actor: object) -> list[str] | None:
    """Runs inside an actor process: the host's methods there that lack the hook; None where it is not on at all."""
    return unpatched() if is_active() else None
