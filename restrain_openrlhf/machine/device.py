"""Describes a kind of accelerator: how the host's processes run on it, and flags that it cannot serve."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Unsupported:
    """An OpenRLHF flag that an accelerator cannot serve: a switch that is on, or a flag with this `value`.

    If it depends on more than that, `when` decides from all flags, by their dotted names.
    """

    flag: str
    reason: str
    value: object = True
    when: Callable[[Mapping[str, Any]], bool] | None = None

    def asked(self, flags: Mapping[str, Any]) -> bool:
        return bool(flags[self.flag] == self.value) if self.when is None else self.when(flags)


@dataclass(frozen=True)
class Device:
    """How the host's processes run on one kind of accelerator.

    `install` is called in every process before it imports the host, so it must be quick and safe to repeat.
    `environment` is set for every process. `host_flags` are OpenRLHF's flags, and `engine_options` vLLM's options, that
    the accelerator needs if a configuration does not set them. Flags in `unsupported` are refused before anything
    starts.
    """

    name: str
    install: Callable[[], None] = lambda: None
    environment: Mapping[str, str] = field(default_factory=dict)
    host_flags: Mapping[str, object] = field(default_factory=dict)
    engine_options: Mapping[str, Any] = field(default_factory=dict)
    unsupported: tuple[Unsupported, ...] = ()
    has_gpus: bool = True
