"""What `restrain doctor` checks where the CUDA stack is installed: driver, toolkit, memory, attention, optimizer."""

import importlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

from restrain_openrlhf.errors import HostError
from restrain_openrlhf.machine.cuda_toolkit import cuda_of_torch, find_nvcc, why_not_compiled
from restrain_openrlhf.machine.flash_attention import EXTENSION, has_extension
from restrain_openrlhf.machine.nvidia import OLDEST_DRIVER, driver_version, gpus

# Less than this share of a GPU free: something else is running on it.
FREE_SHARE = 0.9
SHM = "/dev/shm"
# What NVIDIA's containers ask for (`--shm-size=1g`); a container has 64 MiB unless told otherwise.
LEAST_SHM_MIB = 1024
INSTALL_FLASH = "`make install-flash` adds flash_attention_2 and packing."


@dataclass(frozen=True)
class Finding:
    """One check: what was found, and what to do where it fails or where there is better."""

    name: str
    found: str
    ok: bool
    advice: str = ""


def gpu_findings() -> Iterator[Finding]:
    """Every check, in the order in which things depend on each other."""
    yield _driver()
    yield _toolkit()
    yield from _memory()
    yield _shared_memory()
    yield _attention()
    yield _optimizer()


def _driver() -> Finding:
    found, cuda = driver_version(), cuda_of_torch()
    oldest = OLDEST_DRIVER.get(int(cuda.split(".")[0])) if cuda else None
    wanted = f"Install NVIDIA's driver R{oldest} or newer: torch is built for CUDA {cuda}." if oldest else ""
    if found is None:
        return Finding("NVIDIA driver", "none", False, wanted or "Install NVIDIA's driver.")
    ok = oldest is None or int(found.split(".")[0]) >= oldest
    return Finding("NVIDIA driver", found, ok, "" if ok else wanted)


def _toolkit() -> Finding:
    """Without a compiler everything runs but packing: this fails only where nvcc cannot be asked."""
    try:
        nvcc = find_nvcc()
    except HostError as error:
        return Finding("nvcc", "no", False, str(error))
    reason = why_not_compiled()
    found = f"{nvcc.version} ({nvcc.path})" if nvcc else "none"
    return Finding("nvcc", found, True, f"Not needed. Not used: {reason}." if reason else "")


def _memory() -> Iterator[Finding]:
    try:
        machine = gpus()
    except HostError as error:
        yield Finding("GPU memory", "no", False, str(error))
        return
    for number, gpu in enumerate(machine):
        ok = gpu.free >= FREE_SHARE * gpu.total
        found = f"{gpu.name}: {gpu.free / 1024:.1f} of {gpu.total / 1024:.1f} GiB free"
        yield Finding(f"GPU {number}", found, ok, "" if ok else "`nvidia-smi` names the process that has the rest.")


def _shared_memory() -> Finding:
    size = shutil.disk_usage(SHM).total // 2**20
    ok = size >= LEAST_SHM_MIB
    advice = f"Give {SHM} {LEAST_SHM_MIB} MiB or more (docker run --shm-size=8g): NCCL and Ray's store are there."
    return Finding(SHM, f"{size} MiB", ok, "" if ok else advice)


def _attention() -> Finding:
    if not has_extension():
        return Finding("attention", "sdpa: flash-attn is not installed", True, INSTALL_FLASH)
    try:
        # torch brings the libraries that the extension is linked to.
        importlib.import_module("torch")
        importlib.import_module(EXTENSION)
    except ImportError as error:
        advice = (
            f"flash-attn was built for another torch ({error}). `pip uninstall flash-attn`, or `make install-flash`."
        )
        return Finding("attention", "flash_attention_2 cannot be loaded", False, advice)
    return Finding("attention", "flash_attention_2, and packing where it is asked for", True)


def _optimizer() -> Finding:
    reason = why_not_compiled()
    found = f"torch's fused AdamW: {reason}" if reason else "DeepSpeed's Adam, compiled at the first start"
    return Finding("optimizer", found, True)
