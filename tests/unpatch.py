"""Takes patches out again, as only tests do: a process of a run keeps them to its end."""

from restrain_openrlhf.machine import patching
from restrain_openrlhf.machine.patching import ORIGINAL, Replacement


def expect_no_more(expectations):
    """Forget these expectations and undo the patches among them, leaving other wrappers in place."""
    patching._expected[:] = [each for each in patching._expected if each not in expectations]
    for patch in patching._imported(expectations):
        if patch.is_on():
            owner, name = patch.locate()
            outer, layer = None, vars(owner)[name]
            while not patch._is_ours(layer):
                outer, layer = layer, layer.__wrapped__
            replaced = isinstance(patch, Replacement)
            within = vars(owner)[ORIGINAL + name] if replaced else layer.__wrapped__
            if replaced:
                delattr(owner, ORIGINAL + name)
            if outer is None:
                setattr(owner, name, within)
            else:
                outer.__wrapped__ = within
