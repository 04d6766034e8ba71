"""Switches the hook on and off in one process: which host methods are wrapped, by what, and how that is undone."""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import wrapt

from restrain_openrlhf.hook import contract


@dataclass(frozen=True)
class Wrapping:
    """A host method and the function of ours, named as `module:function`, that wraps it."""

    host_module: str
    host_method: str
    wrapper: str


@dataclass(frozen=True)
class ActorMethod:
    """A method of a Ray actor class, and the function of ours that takes its place.

    When a class becomes an actor, Ray copies its inherited methods onto it (ray/util/tracing/tracing_helper.py), so
    that wrapping the base class would change nothing; and it pickles the class by value, so that changing it in the
    driver is enough. `replacement` calls the base class, or what `original_of` gives.
    """

    host_module: str
    actor_class: str
    method: str
    replacement: str


HERE = "restrain_openrlhf.hook"
WRAPPINGS = (
    Wrapping(
        contract.EXPERIENCE_MAKER,
        "RemoteExperienceMaker.make_experience_batch",
        f"{HERE}.experience:make_experience_batch",
    ),
    Wrapping(contract.STRATEGY, "DeepspeedStrategy.setup_dataloader", f"{HERE}.sampling:setup_dataloader"),
    Wrapping(contract.PROMPTS_DATASET, "preprocess_data", f"{HERE}.labels:preprocess_data"),
    Wrapping(contract.SAMPLES, "SamplesGenerator.generate_samples", f"{HERE}.rollouts:generate_samples"),
    Wrapping(contract.SAMPLES, "SamplesGenerator._dispatch_prompts_to_vllm", f"{HERE}.rollouts:dispatch_prompts"),
    Wrapping(contract.SAMPLES, "SamplesGenerator._process_response_into_experience", f"{HERE}.carried:keep_votes"),
    Wrapping(contract.PPO_ACTOR, "ActorPPOTrainer.__init__", f"{HERE}.actor:initialise"),
    Wrapping(contract.PPO_ACTOR, "ActorPPOTrainer.ppo_train", f"{HERE}.actor:ppo_train"),
    Wrapping(contract.PPO_ACTOR, "ActorPPOTrainer.training_step", f"{HERE}.actor:training_step"),
    Wrapping(contract.LAUNCHER, "RayActorGroup.async_init_model_from_pretrained", f"{HERE}.handshake:init_model"),
    Wrapping(contract.STRATEGY, "DeepspeedStrategy.save_ckpt", f"{HERE}.checkpoints:save_ckpt"),
)
ACTOR_METHODS = (
    ActorMethod(contract.PPO_TRAINER, "PPOTrainer", "train_step", f"{HERE}.trainer:train_step"),
    ActorMethod(contract.PPO_TRAINER_ASYNC, "TrainingActor", "train_step", f"{HERE}.trainer:train_step"),
    ActorMethod(contract.PPO_TRAINER, "PPOTrainer", "fit", f"{HERE}.trainer:fit"),
    ActorMethod(contract.PPO_TRAINER, "PPOTrainer", "get_max_steps", f"{HERE}.trainer:get_max_steps"),
    ActorMethod(contract.PPO_TRAINER, "PPOTrainer", "save_best_checkpoint", f"{HERE}.evaluations:save_best_checkpoint"),
    ActorMethod(
        contract.PPO_TRAINER_ASYNC, "TrainingActor", "save_best_checkpoint", f"{HERE}.evaluations:save_best_checkpoint"
    ),
    ActorMethod(contract.VLLM_ENGINE, "RolloutRayActor", "__init__", f"{HERE}.rollouts:initialise"),
    ActorMethod(contract.VLLM_ENGINE, "RolloutRayActor", "generate_responses", f"{HERE}.rollouts:generate_responses"),
)
HOST_MODULES = {hooked.host_module for hooked in (*WRAPPINGS, *ACTOR_METHODS)}


@dataclass
class _Process:
    """What has been done to this process: whether the hook is on, and (owner, name, original) of each wrapping."""

    active: bool = False
    registered: bool = False
    wrapped: list[tuple[Any, str, Any]] = field(default_factory=list)


_process = _Process()


def load(name: str) -> Callable[..., Any]:
    """The function that `module:function` names. Imported late, because these modules import torch."""
    module, function = name.split(":")
    loaded: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return loaded


def is_active() -> bool:
    """Whether host modules imported in this process are, or will be, wrapped."""
    return _process.active


def install() -> None:
    """Wrap the host's methods in this process, now or as their modules are imported. Safe to repeat.

    Raises HostError where the installed OpenRLHF is not one the hook was written for.
    """
    contract.check_version()
    _process.active = True
    if _process.registered:
        _wrap_imported()
        return
    _process.registered = True
    for module in HOST_MODULES:
        wrapt.register_post_import_hook(_on_import, module)


def uninstall() -> None:
    """Give the host its own methods back."""
    _process.active = False
    while _process.wrapped:
        owner, name, original = _process.wrapped.pop()
        setattr(owner, name, original)
        if hasattr(owner, contract.ORIGINAL + name):
            delattr(owner, contract.ORIGINAL + name)


def _wrap_imported() -> None:
    for module in HOST_MODULES & set(sys.modules):
        _on_import(sys.modules[module])


def _on_import(module: Any) -> None:
    if not is_active():
        return
    contract.check_module(module.__name__)
    for wrapping in WRAPPINGS:
        if wrapping.host_module == module.__name__:
            _wrap(module, wrapping)
    for actor_method in ACTOR_METHODS:
        if actor_method.host_module == module.__name__:
            _replace(module, actor_method)


def _replace(module: Any, actor_method: ActorMethod) -> None:
    owner = getattr(module, actor_method.actor_class).__ray_metadata__.modified_class
    original, replacement = getattr(owner, actor_method.method), load(actor_method.replacement)
    if original is not replacement:
        # On the class, because it must travel with it to the actor's process.
        setattr(owner, contract.ORIGINAL + actor_method.method, original)
        setattr(owner, actor_method.method, replacement)
        _process.wrapped.append((owner, actor_method.method, original))


def original_of(actor: Any, method: str) -> Callable[..., Any]:
    """The host's own function behind a replaced method of this actor; it wants the actor as its first argument."""
    original: Callable[..., Any] = getattr(type(actor), contract.ORIGINAL + method)
    return original


def _wrap(module: Any, wrapping: Wrapping) -> None:
    owner, name, original = wrapt.resolve_path(module, wrapping.host_method)
    if isinstance(original, wrapt.FunctionWrapper):
        return
    wrapt.wrap_function_wrapper(module, wrapping.host_method, load(wrapping.wrapper))
    _process.wrapped.append((owner, name, original))
