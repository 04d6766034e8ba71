"""Adapts modules of the host to an accelerator, each as it is imported."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import wrapt

from restrain_openrlhf.hook.host_methods import HostMethod

_REGISTERED: list["StandIn"] = []


@dataclass(frozen=True)
class StandIn:
    """How a module is adapted, and the parameters of every callable in it that is replaced or changed."""

    module: str
    adapt: Callable[[Any], None]
    takes: Mapping[str, str]

    def check_and_adapt(self, module: Any) -> None:
        """Raises HostError, naming what differs, before anything of the module is changed."""
        for qualname, parameters in self.takes.items():
            HostMethod(self.module, qualname, parameters).check()
        self.adapt(module)


def adapt_when_imported(stand_ins: Iterable[StandIn]) -> None:
    """Ask to be called when each module is imported, or at once where it is. Safe to repeat."""
    for stand_in in stand_ins:
        if stand_in not in _REGISTERED:
            _REGISTERED.append(stand_in)
            wrapt.register_post_import_hook(stand_in.check_and_adapt, stand_in.module)
