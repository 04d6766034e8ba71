"""Wraps or replaces functions of other packages by ours; each is checked and patched as its module is imported.

The patches of the hook (hook/install/instrument.py) and of a Device are tables of the two classes here, Wrapping and
Replacement. What else we rely on of other packages is written down as HostMethod and checked, too.
"""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import wrapt

from restrain_openrlhf.errors import HostError
from restrain_openrlhf.machine.host_releases import installed

# A function of ours that replaces a method keeps the host's own on the same class, under this prefix.
ORIGINAL = "_restrain_original_"


@dataclass(frozen=True)
class HostMethod:
    """A function or method of the host, named by `module` and `qualname`.

    `takes` are its parameters in the newest release, without types and defaults, such as "(self, prompts, *, images,
    **generate_kwargs)". host_releases.yaml has those of other releases.
    """

    module: str
    qualname: str
    takes: str

    @property
    def accepted(self) -> str:
        return installed().takes.get(f"{self.module}.{self.qualname}", self.takes)

    def check(self) -> None:
        """Raises HostError if it is missing or takes other parameters."""
        owner, name = self.locate()
        found = parameters(getattr(owner, ORIGINAL + name, None) or getattr(owner, name))
        if found not in (self.takes, self.accepted):
            raise self._differs(f"takes {found}, but restrain-openrlhf was written for {self.accepted}")

    def locate(self) -> tuple[Any, str]:
        """The module or class that has it, and its name there. Raises HostError if it is missing."""
        *path, name = self.qualname.split(".")
        owner: Any = importlib.import_module(self.module)
        try:
            for part in path:
                found = getattr(owner, installed().named.get(f"{self.module}.{part}", part))
                # A Ray actor class has the plain class behind it.
                metadata = getattr(found, "__ray_metadata__", None)
                owner = found if metadata is None else metadata.modified_class
            getattr(owner, name)
        except AttributeError:
            raise self._differs("is missing, but restrain-openrlhf relies on it") from None
        return owner, name

    def _differs(self, how: str) -> HostError:
        package = self.module.split(".", maxsplit=1)[0]
        advice = f"Install the {package} that `restrain doctor` names, unchanged."
        return HostError(f"{self.module}.{self.qualname} {how}. {advice}")


def parameters(function: Any) -> str:
    """The parameters of a function in order, with * and ** but without types and defaults.

    The parameter that Ray adds to the methods of actor classes (_ray_trace_ctx) is left out.
    """
    signature = inspect.signature(function)
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty, default=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
        if not parameter.name.startswith("_ray_")
    ]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


@dataclass(frozen=True)
class _OurFunction(HostMethod):
    """A host method that our function `ours`, given as `module:function`, wraps or replaces."""

    ours: str

    def is_on(self) -> bool:
        """Whether a call of the method, which may run through wrappers of others, reaches our function."""
        owner, name = self.locate()
        layer = vars(owner)[name]
        while hasattr(layer, "__wrapped__") and not self._is_ours(layer):
            layer = layer.__wrapped__
        return self._is_ours(layer)

    def remove(self) -> None:
        """Take our function out, and leave other wrappers in place.

        Raises HostError if a wrapper that is not wrapt's holds it.
        """
        if not self.is_on():
            return
        owner, name = self.locate()
        outer, layer = None, vars(owner)[name]
        while not self._is_ours(layer):
            outer, layer = layer, layer.__wrapped__
        if outer is None:
            setattr(owner, name, self._within(layer))
        elif isinstance(outer, wrapt.FunctionWrapper):
            outer.__wrapped__ = self._within(layer)
        else:
            raise HostError(
                f"{self.module}.{self.qualname} was decorated by {outer!r} after the hook was installed, so that the "
                "hook cannot be removed. Decorate it before that, or with wrapt."
            )

    def _is_ours(self, layer: Any) -> bool:
        return layer is load(self.ours)

    def _within(self, layer: Any) -> Any:
        """What our function has wrapped."""
        return layer.__wrapped__


class Wrapping(_OurFunction):
    """Our function wraps the method, beside any other wrappers."""

    def apply(self) -> None:
        """Wrap the method, outside other wrappers, unless our function wraps it already."""
        if not self.is_on():
            wrapt.wrap_function_wrapper(*self.locate(), load(self.ours))

    def _is_ours(self, layer: Any) -> bool:
        # wrapt's type is not checked, because torch wraps a bound method, for which wrapt has another type.
        return getattr(layer, "_self_wrapper", None) is load(self.ours)


class Replacement(_OurFunction):
    """Our function replaces the method, or our class replaces a class.

    It is needed for methods of Ray actor classes. When a class becomes an actor, Ray copies its inherited methods onto
    it (ray/util/tracing/tracing_helper.py), so wrapping the base class would change nothing. Ray pickles the class by
    value, so changing it in the driver is enough. `ours` can call the host's own method by `original_of`.
    """

    def apply(self) -> None:
        if not self.is_on():
            owner, name = self.locate()
            # The original is kept on the class, because it must travel with the class to the actor's process.
            setattr(owner, ORIGINAL + name, vars(owner)[name])
            setattr(owner, name, load(self.ours))

    def _within(self, layer: Any) -> Any:
        """The host's method, which our function has replaced."""
        owner, name = self.locate()
        theirs = vars(owner)[ORIGINAL + name]
        delattr(owner, ORIGINAL + name)
        return theirs


Patch = Wrapping | Replacement
# Keys: the part of the record, the module, and the name in the module; the value is what is recorded.
Record = Mapping[str, Mapping[str, Mapping[str, Any]]]


def patches_in(record: Record, package: str) -> tuple[Patch, ...]:
    """The patches in a record's parts `wrapped` and `replaced`, whose functions `ours` are named within `package`."""
    return tuple(
        kind(module, name, row["takes"], f"{package}.{row['ours']}")
        for part, kind in (("wrapped", Wrapping), ("replaced", Replacement))
        for module, rows in record[part].items()
        for name, row in rows.items()
    )


def original_of(actor: Any, method: str) -> Callable[..., Any]:
    """The host's own function behind a replaced method of this actor. Its first argument is the actor."""
    original: Callable[..., Any] = getattr(type(actor), ORIGINAL + method)
    return original


def load(name: str) -> Callable[..., Any]:
    """The function that `module:function` names. It is imported late, because these modules import torch."""
    module, function = name.split(":")
    loaded: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return loaded


# What this process expects of modules, in order, and the modules that have an import hook already.
_expected: list[HostMethod] = []
_awaited: set[str] = set()


def expect(expectations: Sequence[HostMethod]) -> None:
    """Check each, and apply those that are patches, when its module is imported, or now if it is imported already.

    Safe to repeat. A module that does not fulfil an expectation raises HostError before it is changed.
    """
    _expected.extend(each for each in expectations if each not in _expected)
    for module in dict.fromkeys(each.module for each in expectations):
        if module not in _awaited:
            _awaited.add(module)
            wrapt.register_post_import_hook(_on_import, module)
        elif module in sys.modules:
            _on_import(sys.modules[module])


def is_expected(expectation: HostMethod) -> bool:
    return expectation in _expected


def expect_no_more(expectations: Sequence[HostMethod]) -> None:
    """Forget these expectations and undo the patches among them, leaving other wrappers in place."""
    _expected[:] = [each for each in _expected if each not in expectations]
    for patch in _imported(expectations):
        patch.remove()


def lost(patches: Sequence[Patch]) -> list[str]:
    """The methods of these patches and of all expected ones, in imported modules, that do not reach our function."""
    every = dict.fromkeys([*patches, *_expected])
    return [f"{patch.module}.{patch.qualname}" for patch in _imported(every) if not patch.is_on()]


def _imported(expectations: Iterable[HostMethod]) -> list[Patch]:
    return [each for each in expectations if isinstance(each, Patch) and each.module in sys.modules]


def _on_import(module: Any) -> None:
    here = [each for each in _expected if each.module == module.__name__]
    for each in here:
        each.check()
    for patch in _imported(here):
        patch.apply()
