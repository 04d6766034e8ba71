"""Switches the hook on and off in one process: host modules are checked and patched as they are imported."""

import sys
from dataclasses import dataclass
from typing import Any

import wrapt

from restrain_openrlhf.hook import contract
from restrain_openrlhf.hook.patches import PATCHES, Replacement, Wrapping


@dataclass
class _Process:
    """What has been done to this process: whether the hook is on, and whether imports are told to it."""

    active: bool = False
    registered: bool = False


_process = _Process()


def is_active() -> bool:
    """Whether host modules imported in this process are, or will be, patched."""
    return _process.active


def install() -> None:
    """Patch the host's methods in this process, now or as their modules are imported. Safe to repeat.

    Raises HostError where the installed OpenRLHF is not one the hook was written for.
    """
    contract.check_version()
    _process.active = True
    if _process.registered:
        _patch_imported()
        return
    _process.registered = True
    for module in contract.HOST_MODULES:
        wrapt.register_post_import_hook(_on_import, module)


def uninstall() -> None:
    """Give the host its own methods back, with whatever wraps them beside the hook."""
    _process.active = False
    for patch in _imported():
        patch.remove()


def unpatched() -> list[str]:
    """The methods of the table, in host modules that are imported here, whose calls do not come to our function."""
    return [f"{patch.module}.{patch.qualname}" for patch in _imported() if not patch.is_on()]


def _imported() -> list[Wrapping | Replacement]:
    return [patch for patch in PATCHES if patch.module in sys.modules]


def _patch_imported() -> None:
    for module in contract.HOST_MODULES & set(sys.modules):
        _on_import(sys.modules[module])


def _on_import(module: Any) -> None:
    if not is_active():
        return
    contract.check_module(module.__name__)
    for patch in PATCHES:
        if patch.module == module.__name__:
            patch.apply()
