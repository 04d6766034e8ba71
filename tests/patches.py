"""Takes our patches off the host's methods again: tests alone need that."""

import sys
from collections.abc import Sequence
from itertools import pairwise

from restrain_openrlhf.machine import patching
from restrain_openrlhf.machine.patching import ORIGINAL, Expectation, Patch, Wrapping


def expect_no_more(expectations: Sequence[Expectation]) -> None:
    """Forget these expectations, and undo the patches among them; what others have wrapped with wrapt stays."""
    patching._expected[:] = [each for each in patching._expected if each not in expectations]
    for each in expectations:
        if isinstance(each, Patch) and each.module in sys.modules and each.is_on():
            _remove(each)


def _remove(patch: Patch) -> None:
    layer, (owner, name) = patch._layer(), patch.locate()
    outer = next((above for above, below in pairwise(patch._layers()) if below is layer), None)
    within = layer.__wrapped__ if isinstance(patch, Wrapping) else vars(owner)[ORIGINAL + name]
    if not isinstance(patch, Wrapping):
        delattr(owner, ORIGINAL + name)
    if outer is None:
        setattr(owner, name, within)
    else:
        outer.__wrapped__ = within
