"""Takes patches off again after a test, which nothing but tests does; what others have wrapped around them stays."""

from itertools import pairwise

import wrapt

from restrain_openrlhf.machine import patching
from restrain_openrlhf.machine.patching import ORIGINAL, Replacement


def take_off(expectations):
    """Forget the expectations, and put back what the patches among them wrap or replace."""
    patching._expected[:] = [each for each in patching._expected if each not in expectations]
    for patch in patching._imported(expectations):
        owner, name = patch.locate()
        layers = patch._layers()
        ours = next(filter(patch._is_ours, layers), None)
        if ours is None:
            continue
        theirs = vars(owner)[ORIGINAL + name] if isinstance(patch, Replacement) else ours.__wrapped__
        outer = next((above for above, below in pairwise(layers) if below is ours), None)
        if outer is None:
            setattr(owner, name, theirs)
        else:
            assert isinstance(outer, wrapt.FunctionWrapper)
            outer.__wrapped__ = theirs
        if isinstance(patch, Replacement):
            delattr(owner, ORIGINAL + name)
