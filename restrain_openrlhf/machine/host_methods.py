"""What is relied on in modules that are not ours, written down, and the check that the installed ones have it so."""

import dis
import importlib
import inspect
from dataclasses import dataclass
from typing import Any

from restrain_openrlhf.errors import HostError
from restrain_openrlhf.machine.host_releases import installed

# Where a function of ours took a method's place on an actor class, the host's own stays there under this prefix.
ORIGINAL = "_restrain_original_"


@dataclass(frozen=True)
class HostMethod:
    """A function or method of the host: `module` and `qualname` name it.

    `takes` are its parameters without types and defaults, such as "(self, prompts, *, images, **generate_kwargs)", in
    the newest release; the table of releases has others (host_releases.yaml).
    """

    module: str
    qualname: str
    takes: str

    @property
    def accepted(self) -> str:
        """What it takes in the installed release, as far as that differs from the newest."""
        return installed().takes.get(f"{self.module}.{self.qualname}", self.takes)

    def check(self) -> None:
        """Raises HostError where it is missing or takes other parameters."""
        owner, name = self.locate()
        found = parameters(getattr(owner, ORIGINAL + name, None) or _part(owner, name, self))
        if found not in (self.takes, self.accepted):
            raise HostError(
                f"{self.module}.{self.qualname} takes {found}, but restrain-openrlhf was written for "
                f"{self.accepted}. {_advice(self.module)}"
            )

    def locate(self) -> tuple[Any, str]:
        """The module or class that has it, and its name there. Raises HostError where there is no such class."""
        *path, name = self.qualname.split(".")
        owner: Any = importlib.import_module(self.module)
        for part in path:
            here = installed().named.get(f"{self.module}.{part}", part)
            owner = _behind_actor(_part(owner, here, self))
        return owner, name


@dataclass(frozen=True)
class HostAttributes:
    """A class of the host and the attributes of its objects that are read."""

    module: str
    qualname: str
    names: tuple[str, ...]

    def check(self) -> None:
        """Raises HostError where the class is missing, or neither has an attribute nor sets it in a method."""
        owner = _behind_actor(_part(importlib.import_module(self.module), self.qualname, self))
        missing = sorted(set(self.names) - _attributes(owner))
        if missing:
            raise HostError(
                f"{self.module}.{self.qualname} has no attribute {', '.join(missing)}, but restrain-openrlhf was "
                f"written for one that has {', '.join(self.names)}. {_advice(self.module)}"
            )


def parameters(function: Any) -> str:
    """The parameters of a function in their order, with * and ** but without types and defaults.

    Ray adds one of its own to the methods of actor classes (_ray_trace_ctx), which is left out.
    """
    signature = inspect.signature(function)
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty, default=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
        if not parameter.name.startswith("_ray_")
    ]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def _attributes(owner: type) -> set[str]:
    """The names a class has, and those that its methods set on an object."""
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
    """The plain class of a Ray actor class; anything else as it is."""
    metadata = getattr(target, "__ray_metadata__", None)
    return target if metadata is None else metadata.modified_class


def _advice(module: str) -> str:
    return f"Install the {module.split('.', maxsplit=1)[0]} that `restrain doctor` names, unchanged."
