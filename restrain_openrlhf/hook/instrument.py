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

    def load(self) -> Callable[..., Any]:
        """The wrapper. Imported late, because it imports torch."""
        module, function = self.wrapper.split(":")
        loaded: Callable[..., Any] = getattr(importlib.import_module(module), function)
        return loaded


HERE = "restrain_openrlhf.hook"
WRAPPINGS = (
    Wrapping(
        contract.EXPERIENCE_MAKER,
        "RemoteExperienceMaker.make_experience_batch",
        f"{HERE}.experience:make_experience_batch",
    ),
    Wrapping(contract.SAMPLES_GENERATOR, "SamplesGenerator.__init__", f"{HERE}.sampling:initialise"),
    Wrapping(contract.PPO_TRAINER, "BasePPOTrainer.train_step", f"{HERE}.trainer:train_step"),
    Wrapping(contract.PPO_ACTOR, "ActorPPOTrainer.__init__", f"{HERE}.actor:initialise"),
    Wrapping(contract.PPO_ACTOR, "ActorPPOTrainer.training_step", f"{HERE}.actor:training_step"),
    Wrapping(contract.LAUNCHER, "RayActorGroup.async_init_model_from_pretrained", f"{HERE}.handshake:init_model"),
    Wrapping(contract.STRATEGY, "DeepspeedStrategy.save_ckpt", f"{HERE}.checkpoints:save_ckpt"),
)

@dataclass
class _Process:
    """What has been done to this process: whether the hook is on, and (owner, name, original) of each wrapping."""

    active: bool = False
    registered: bool = False
    wrapped: list[tuple[Any, str, Any]] = field(default_factory=list)


_process = _Process()


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
    for module in {wrapping.host_module for wrapping in WRAPPINGS}:
        wrapt.register_post_import_hook(_on_import, module)


def uninstall() -> None:
    """Give the host its own methods back."""
    _process.active = False
    while _process.wrapped:
        owner, name, original = _process.wrapped.pop()
        setattr(owner, name, original)


def _wrap_imported() -> None:
    for module in {wrapping.host_module for wrapping in WRAPPINGS} & set(sys.modules):
        _on_import(sys.modules[module])


def _on_import(module: Any) -> None:
    if not is_active():
        return
    contract.check_module(module.__name__)
    for wrapping in WRAPPINGS:
        if wrapping.host_module == module.__name__:
            _wrap(module, wrapping)


def _wrap(module: Any, wrapping: Wrapping) -> None:
    owner, name, original = wrapt.resolve_path(module, wrapping.host_method)
    if isinstance(original, wrapt.FunctionWrapper):
        return
    wrapt.wrap_function_wrapper(module, wrapping.host_method, wrapping.load())
    _process.wrapped.append((owner, name, original))
