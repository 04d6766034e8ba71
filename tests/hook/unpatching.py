"""Takes the hook's patches out of this process again, which only tests do."""

import sys

from restrain_openrlhf.machine import patching
from restrain_openrlhf.machine.patching import ORIGINAL, Replacement, Wrapping


def expect_no_more(expectations):
    """Forget these expectations, and undo the patches among them that are on; wrappers of others stay."""
    patching._expected[:] = [each for each in patching._expected if each not in expectations]
    for each in expectations:
        if isinstance(each, Wrapping | Replacement) and each.module in sys.modules and each.is_on():
            _remove(each)


def _remove(patch):
    owner, name = patch.locate()
    layers = [vars(owner)[name]]
    while not patch._is_ours(layers[-1]):
        layers.append(layers[-1].__wrapped__)
    if isinstance(patch, Replacement):
        within = vars(owner)[ORIGINAL + name]
        delattr(owner, ORIGINAL + name)
    else:
        within = layers[-1].__wrapped__
    if len(layers) == 1:
        setattr(owner, name, within)
    else:
        layers[-2].__wrapped__ = within
