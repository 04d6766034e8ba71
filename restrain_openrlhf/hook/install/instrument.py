"""Switches the hook on and off in one process: host modules are checked and patched as they are imported."""

from restrain_openrlhf.config.host_flags import check_version
from restrain_openrlhf.hook.install import contract
from restrain_openrlhf.hook.install.patches import PATCHES
from restrain_openrlhf.machine.patching import expect, expect_no_more, is_expected, lost


def is_active() -> bool:
    """Whether host modules imported in this process are, or will be, patched."""
    return is_expected(PATCHES[0])


def install() -> None:
    """Patch the host's methods in this process, now or as their modules are imported. Safe to repeat.

    Raises HostError where the installed OpenRLHF is not one the hook was written for.
    """
    check_version()
    expect(contract.CONTRACT)


def uninstall() -> None:
    """Give the host its own methods back, with whatever wraps them beside the hook."""
    expect_no_more(contract.CONTRACT)


def unpatched() -> list[str]:
    """The hook's methods, and this accelerator's, in modules that are imported here, that lack our function."""
    return lost(PATCHES)
