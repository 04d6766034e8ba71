"""Takes functions of ours out of the host again. A run never does; a test leaves the host as it found it."""

import sys
from collections.abc import Sequence

from restrain_openrlhf.machine import patching
from restrain_openrlhf.machine.patching import ORIGINAL, Expectation, Patch, Replacement


def uninstall() -> None:
    """What the hook has put into this process, and no longer expects of modules that are yet to be imported."""
    from restrain_openrlhf.hook.install.instrument import CONTRACT

    expect_no_more(CONTRACT)


def expect_no_more(expectations: Sequence[Expectation]) -> None:
    patching._expected[:] = [each for each in patching._expected if each not in expectations]
    for each in expectations:
        if isinstance(each, Patch) and each.module in sys.modules:
            take_out(each)


def take_out(patch: Patch) -> None:
    """Ours alone: what wraps it by now stays, and so does what it wraps."""
    layers = patch._layers()
    place = next((place for place, layer in enumerate(layers) if patch._is_ours(layer)), None)
    if place is None:
        return
    owner, name = patch.locate()
    replaced = isinstance(patch, Replacement)
    below = vars(owner)[ORIGINAL + name] if replaced else layers[place].__wrapped__
    if place:
        layers[place - 1].__wrapped__ = below
    else:
        setattr(owner, name, below)
    if replaced:
        delattr(owner, ORIGINAL + name)
