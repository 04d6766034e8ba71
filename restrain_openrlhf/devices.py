"""Which accelerator a run uses: CUDA as it is, or a registered stand-in where there is none."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from restrain_openrlhf.errors import HostError

ENTRY_POINT_GROUP = "restrain_openrlhf.devices"


def _nothing() -> None:
    """CUDA needs no preparation."""


@dataclass(frozen=True)
class Device:
    """How the host's processes run on one kind of accelerator.

    `install` is called in every process before it imports the host; it must be quick and safe to repeat.
    `environment` is set for every process. `host_flags` are OpenRLHF flags the accelerator cannot do without, and
    `engine_options` vLLM's.
    """

    name: str
    install: Callable[[], None] = _nothing
    environment: Mapping[str, str] = field(default_factory=dict)
    host_flags: Mapping[str, object] = field(default_factory=dict)
    engine_options: Mapping[str, Any] = field(default_factory=dict)
    has_gpus: bool = True


CUDA = Device(name="cuda")


@cache
def detect() -> Device:
    """CUDA where torch sees a GPU, else the one registered stand-in.

    Raises HostError where there is neither.
    """
    if cuda_is_present():
        return CUDA
    stand_ins = entry_points(group=ENTRY_POINT_GROUP)
    if not stand_ins:
        raise HostError(
            f"No CUDA device was found, and no package registers a stand-in under {ENTRY_POINT_GROUP!r}. "
            "Run on a GPU machine, or reinstall restrain-openrlhf so that its entry points are registered."
        )
    device: Device = next(iter(stand_ins)).load()
    return device


def cuda_is_present() -> bool:
    """Whether torch is a CUDA build and sees a device. Raises HostError where there is no torch."""
    try:
        import torch  # noqa: PLC0415 - costs seconds, and most commands never ask
    except ImportError:
        raise HostError(
            "PyTorch is not installed: this command needs the training stack. `make install` sets it up, or install "
            "requirements/gpu.txt."
        ) from None
    return torch.cuda.is_available()
