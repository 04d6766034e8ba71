"""Writes down which methods and attributes of other packages we rely on, and checks the installed packages for them."""

import dis
import importlib
import inspect
from dataclasses import dataclass
from typing import Any

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
        """Its parameters in the installed release."""
        return installed().takes.get(f"{self.module}.{self.qualname}", self.takes)

    def check(self) -> None:
        """Raises HostError if it is missing or takes other parameters."""
        owner, name = self.locate()
        found = parameters(getattr(owner, ORIGINAL + name, None) or _part(owner, name, self))
        if found not in (self.takes, self.accepted):
            raise HostError(
                f"{self.module}.{self.qualname} takes {found}, but restrain-openrlhf was written for "
                f"{self.accepted}. {_advice(self.module)}"
            )

    def locate(self) -> tuple[Any, str]:
        """The module or class that has it, and its name there. Raises HostError if there is no such class."""
        *path, name = self.qualname.split(".")
        owner: Any = importlib.import_module(self.module)
        for part in path:
            here = installed().named.get(f"{self.module}.{part}", part)
            owner = _behind_actor(_part(owner, here, self))
        return owner, name


@dataclass(frozen=True)
class HostAttributes:
    """A class of the host, and attributes of its objects that our code reads."""

    module: str
    qualname: str
    names: tuple[str, ...]

    def check(self) -> None:
        """Raises HostError if the class is missing, or neither has one of the attributes nor sets it in a method."""
        owner = _behind_actor(_part(importlib.import_module(self.module), self.qualname, self))
        missing = sorted(set(self.names) - _attributes(owner))
        if missing:
            raise HostError(
                f"{self.module}.{self.qualname} has no attribute {', '.join(missing)}, but restrain-openrlhf was "
                f"written for one that has {', '.join(self.names)}. {_advice(self.module)}"
            )


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


def _attributes(owner: type) -> set[str]:
    """The names that a class has, and those that its methods set on an object."""
    functions = [inspect.unwrap(value) for base in owner.__mro__ for value in vars(base).values() if callable(value)]
    steps = [step for function in functions if hasattr(function, "__code__") for step in dis.get_instructions(function)]
    return {*dir(owner), *(step.argval for step in steps if step.opname == "STORE_ATTR")}


def _part(owner: Any, name: str, wanted: HostMethod | HostAttributes) -> Any:
    found = getattr(owner, name, None)
    if found is None:
        raise HostError(
            f"{wanted.module} has no {wanted.qualname}, which restrain-openrlhf relies on. {_advice(wanted.module)}"
        )
    return found


def _behind_actor(target: Any) -> Any:
    """The plain class behind a Ray actor class; anything else is returned unchanged."""
    metadata = getattr(target, "__ray_metadata__", None)
    return target if metadata is None else metadata.modified_class


def _advice(module: str) -> str:
    return f"Install the {module.split('.', maxsplit=1)[0]} that `restrain doctor` names, unchanged."
