"""Takes patches out of this process again: the product never does, and tests share a process."""

from restrain_openrlhf.hook.install import contract
from restrain_openrlhf.machine import patching
from restrain_openrlhf.machine.host_methods import ORIGINAL
from restrain_openrlhf.machine.patching import Wrapping


def uninstall() -> None:
    """Give the host its own methods back, with whatever wraps them beside the hook."""
    expect_no_more(contract.CONTRACT)


def expect_no_more(expectations) -> None:
    """Take the patches among them out again."""
    patching._expected[:] = [each for each in patching._expected if each not in expectations]
    for patch in patching._imported(expectations):
        take_out(patch)


def take_out(patch) -> None:
    """Put what our function wraps, or the host's own, in its place under whatever wrapt wrapped around it."""
    if not patch.is_on():
        return
    owner, name = patch.locate()
    above, layer = None, vars(owner)[name]
    while not patch._is_ours(layer):
        above, layer = layer, layer.__wrapped__
    other = layer.__wrapped__ if isinstance(patch, Wrapping) else vars(owner)[ORIGINAL + name]
    if above is None:
        setattr(owner, name, other)
    else:
        above.__wrapped__ = other
    if not isinstance(patch, Wrapping):
        delattr(owner, ORIGINAL + name)
