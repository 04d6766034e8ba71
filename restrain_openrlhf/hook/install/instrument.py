"""Everything of the host that the hook relies on, from its record: checked, and patched where the hook is on."""

import asyncio
import importlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from restrain_openrlhf.errors import HostError
from restrain_openrlhf.machine.host_releases import NEWEST, Way, check_version
from restrain_openrlhf.machine.patching import (
    HostAttributes,
    HostMethod,
    Patch,
    Replacement,
    Wrapping,
    expect,
    expect_no_more,
    is_expected,
    lost,
)

_FILE = Path(__file__).with_name(f"openrlhf-{NEWEST.version}.yaml")
# Keys: the part of the record, the host's module, and the name in the module; the value is what is recorded.
RECORD: Mapping[str, Mapping[str, Mapping[str, Any]]] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
VLLM_ENGINE = "openrlhf.trainer.ray.vllm_engine"
ROLLOUTS = 3


@dataclass
class _Recorder:
    """An executor that records its calls, and how many rollouts had been started when the first one continued."""

    given: list[object] = field(default_factory=list)
    started_together: int = 0

    async def execute(self, *_: Any, sampling_params: object, **__: Any) -> None:
        self.given.append(sampling_params)
        await asyncio.sleep(0)
        self.started_together = self.started_together or len(self.given)


@dataclass(frozen=True)
class SharedGroup:
    """An actor class whose `generate_responses` starts all rollouts of a prompt at once, with one shared object."""

    module: str
    qualname: str

    def check(self) -> None:
        """Call it with an executor of our own. Raises HostError if that object would not identify the group."""
        owner, name = HostMethod(self.module, f"{self.qualname}.generate_responses", "").locate()
        recorder = _Recorder()
        drawing = getattr(owner, name)(
            SimpleNamespace(executor=recorder),
            prompt="1+1=",
            label="",
            sampling_params=object(),
            max_length=8,
            hf_tokenizer=None,
            num_samples=ROLLOUTS,
        )
        # Use another thread, because the one that imports the host may already run an event loop.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, drawing).result()
        if recorder.started_together != ROLLOUTS or len({id(each) for each in recorder.given}) != 1:
            raise HostError(
                f"{self.module}.{self.qualname}.generate_responses started {recorder.started_together} of {ROLLOUTS} "
                f"rollouts at once, with {len({id(each) for each in recorder.given})} sampling_params objects, but "
                "the hook tells groups apart by that object. Install the openrlhf that `restrain doctor` names, "
                "unchanged."
            )


def _recorded(part: str) -> Iterator[tuple[str, str, Any]]:
    return ((module, name, row) for module, rows in RECORD[part].items() for name, row in rows.items())


def _ours(row: Mapping[str, str]) -> tuple[str, str]:
    return row["takes"], f"restrain_openrlhf.hook.{row['ours']}"


PATCHES: tuple[Patch, ...] = (
    *(Wrapping(module, name, *_ours(row)) for module, name, row in _recorded("wrapped")),
    *(Replacement(module, name, *_ours(row)) for module, name, row in _recorded("replaced")),
)
# What the agent's file relies on, with and without the hook.
AGENT_CONTRACT: tuple[HostMethod | SharedGroup, ...] = (
    *(HostMethod(module, name, takes) for module, name, takes in _recorded("called_by_agent")),
    SharedGroup(VLLM_ENGINE, "RolloutRayActor"),
)
CONTRACT: tuple[HostMethod | HostAttributes | SharedGroup, ...] = (
    *PATCHES,
    *(HostMethod(module, name, takes) for module, name, takes in _recorded("called")),
    *(HostAttributes(module, name, tuple(attributes)) for module, name, attributes in _recorded("read")),
    *AGENT_CONTRACT,
)
HOST_MODULES = frozenset(relied_on.module for relied_on in CONTRACT)


def check_all() -> None:
    """Import every host module that the hook relies on, and check it.

    Takes seconds; for `restrain doctor` and tests.
    """
    check_version()
    for module in sorted(HOST_MODULES):
        importlib.import_module(module)
        check_module(module)


def check_agent() -> None:
    """Raises HostError if the agent's file cannot draw in the installed OpenRLHF, hooked or not."""
    check_version(Way.AGENT)
    for relied_on in AGENT_CONTRACT:
        relied_on.check()


def check_module(module: str) -> None:
    """Check one imported host module. Raises HostError naming what differs from the record."""
    for relied_on in CONTRACT:
        if relied_on.module == module:
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
