"""Puts functions of ours around or in the place of a module's own, each checked and applied as the module is imported.

What the hook patches (hook/install/instrument.py) and what an accelerator needs (a Device's patches) are rows of these
two classes.
"""

import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import wrapt

from restrain_openrlhf.errors import HostError
from restrain_openrlhf.machine.host_methods import ORIGINAL, HostMethod


class Expectation(Protocol):
    """Something that a module must have."""

    @property
    def module(self) -> str: ...

    def check(self) -> None:
        """Raises HostError where the module has it not."""


@dataclass(frozen=True)
class _OurFunction(HostMethod):
    """A host method that a function of ours, named as `module:function`, wraps or takes the place of."""

    ours: str

    def is_on(self) -> bool:
        """Whether a call of the method comes to our own function."""
        return self._layer() is not None

    def _is_ours(self, layer: Any) -> bool:
        return layer is load(self.ours)

    def _layer(self) -> Any:
        """Our function among what a call of the method runs through; None where it is not there."""
        return next(filter(self._is_ours, self._layers()), None)

    def _layers(self) -> list[Any]:
        """What a call runs through, outermost first: every wrapper, and what the last of them wraps."""
        owner, name = self.locate()
        found = [vars(owner)[name]]
        while hasattr(found[-1], "__wrapped__"):
            found.append(found[-1].__wrapped__)
        return found

    def _exchange(self, layer: Any, other: Any) -> None:
        """Raises HostError where what wraps the layer is not wrapt's, and holds on to what it once was given."""
        owner, name = self.locate()
        outer = next((above for above, below in pairwise(self._layers()) if below is layer), None)
        if outer is None:
            setattr(owner, name, other)
        elif isinstance(outer, wrapt.FunctionWrapper):
            outer.__wrapped__ = other
        else:
            raise HostError(
                f"{self.module}.{self.qualname} was decorated by {outer!r} after the hook was installed, so that the "
                "hook cannot be removed. Decorate it before that, or with wrapt."
            )


class Wrapping(_OurFunction):
    """Our function wraps the method, whatever else does too."""

    def apply(self) -> None:
        """Wrap it, around whatever wraps it already, unless our own function does."""
        if not self.is_on():
            wrapt.wrap_function_wrapper(*self.locate(), load(self.ours))

    def remove(self) -> None:
        """Take our own function out and leave every other wrapper where it is. Raises HostError where it cannot."""
        if layer := self._layer():
            self._exchange(layer, layer.__wrapped__)

    def _is_ours(self, layer: Any) -> bool:
        # Not by wrapt's type: torch wraps a method that it takes from its class, where wrapt's wrapper is another type.
        return getattr(layer, "_self_wrapper", None) is load(self.ours)


class Replacement(_OurFunction):
    """Our function takes the method's place; or a class of ours that of a class.

    For methods of Ray actor classes: when a class becomes an actor, Ray copies its inherited methods onto it
    (ray/util/tracing/tracing_helper.py), so that wrapping the base class would change nothing; and it pickles the
    class by value, so that changing it in the driver is enough. `ours` calls the base class, or what `original_of`
    gives.
    """

    def apply(self) -> None:
        """Take its place, unless that is done already."""
        if not self.is_on():
            owner, name = self.locate()
            # On the class, because it must travel with it to the actor's process.
            setattr(owner, ORIGINAL + name, vars(owner)[name])
            setattr(owner, name, load(self.ours))

    def remove(self) -> None:
        """Give the host its own back, under whatever wraps ours by now. Raises HostError where that cannot be."""
        if layer := self._layer():
            owner, name = self.locate()
            self._exchange(layer, vars(owner)[ORIGINAL + name])
            delattr(owner, ORIGINAL + name)


Patch = Wrapping | Replacement


def original_of(actor: Any, method: str) -> Callable[..., Any]:
    """The host's own function behind a replaced method of this actor; it wants the actor as its first argument."""
    original: Callable[..., Any] = getattr(type(actor), ORIGINAL + method)
    return original


def load(name: str) -> Callable[..., Any]:
    """The function that `module:function` names. Imported late, because these modules import torch."""
    module, function = name.split(":")
    loaded: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return loaded


# What this process expects of modules, in its order, and the modules whose import it is told of.
_expected: list[Expectation] = []
_awaited: set[str] = set()


def expect(expectations: Sequence[Expectation]) -> None:
    """Have each checked, and the patches among them applied, as its module is imported, or at once where it is.

    Safe to repeat. Raises HostError for a module that is there and has something else, before it is changed.
    """
    _expected.extend(each for each in expectations if each not in _expected)
    for module in dict.fromkeys(each.module for each in expectations):
        if module not in _awaited:
            _awaited.add(module)
            wrapt.register_post_import_hook(_on_import, module)
        elif module in sys.modules:
            _on_import(sys.modules[module])


def is_expected(expectation: Expectation) -> bool:
    return expectation in _expected


def expect_no_more(expectations: Sequence[Expectation]) -> None:
    """Take the patches among them out again, with whatever wraps a method beside them left where it is."""
    _expected[:] = [each for each in _expected if each not in expectations]
    for patch in _imported(expectations):
        patch.remove()


def lost(patches: Sequence[Patch]) -> list[str]:
    """The methods of these patches, and of all that this process expects, whose calls do not come to our function.

    Of modules that are imported here.
    """
    every = dict.fromkeys([*patches, *_expected])
    return [f"{patch.module}.{patch.qualname}" for patch in _imported(every) if not patch.is_on()]


def _imported(expectations: Iterable[Expectation]) -> list[Patch]:
    return [each for each in expectations if isinstance(each, Patch) and each.module in sys.modules]


def _on_import(module: Any) -> None:
    here = [each for each in _expected if each.module == module.__name__]
    for each in here:
        each.check()
    for patch in _imported(here):
        patch.apply()
