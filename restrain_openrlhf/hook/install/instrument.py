"""Everything of the host that the hook relies on, from its record: checked, and patched in each process of a run."""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from restrain_openrlhf.config.documents import shipped_yaml
from restrain_openrlhf.config.gpu_layout import optimizer_steps
from restrain_openrlhf.errors import HookNotActiveError
from restrain_openrlhf.hook.install.environment import config_here
from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.machine.host_releases import NEWEST, Way, check_version
from restrain_openrlhf.machine.patching import (
    HostMethod,
    Record,
    expect,
    expect_no_more,
    is_expected,
    lost,
    patches_in,
)

_FILE = Path(__file__).with_name(f"openrlhf-{NEWEST.version}.yaml")
RECORD: Record = shipped_yaml(_FILE)
SETUP_HOOK = "restrain_openrlhf.hook.install.instrument.setup"


def _called(part: str) -> tuple[HostMethod, ...]:
    return tuple(
        HostMethod(module, name, takes) for module, rows in RECORD[part].items() for name, takes in rows.items()
    )


PATCHES = patches_in(RECORD, "restrain_openrlhf.hook")
# What the agent's file relies on, with and without the hook.
AGENT_CONTRACT = _called("called_by_agent")
CONTRACT: tuple[HostMethod, ...] = (*PATCHES, *_called("called"), *AGENT_CONTRACT)
HOST_MODULES = frozenset(relied_on.module for relied_on in CONTRACT)


def check_all() -> None:
    """Import every host module that the hook relies on, and check it.

    Takes seconds; for `restrain doctor` and tests.
    """
    check_version()
    for module in sorted(HOST_MODULES):
        importlib.import_module(module)
    for relied_on in CONTRACT:
        relied_on.check()


def check_agent() -> None:
    """Raises HostError if the agent's file cannot draw in the installed OpenRLHF, hooked or not."""
    check_version(Way.AGENT)
    for relied_on in AGENT_CONTRACT:
        relied_on.check()


def is_active() -> bool:
    """Whether the hook is on in this process: host modules are patched when they are imported."""
    return is_expected(PATCHES[0])


def install() -> None:
    """Patch the host's methods in this process, now or when their modules are imported. Calling it again is safe.

    Raises HostError if the installed OpenRLHF is not a release that the hook supports.
    """
    check_version()
    expect(CONTRACT)


def uninstall() -> None:
    """Remove the hook's patches; what others have wrapped around the host's methods stays."""
    expect_no_more(CONTRACT)


def unpatched() -> list[str]:
    """Methods of imported modules that should be patched, by the hook or for the accelerator, and are not."""
    return lost(PATCHES)


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
    import ray  # noqa: PLC0415 - a worker's set-up is quick; by now the host has imported it

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
