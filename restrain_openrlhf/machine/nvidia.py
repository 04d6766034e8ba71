"""What a machine says of its NVIDIA GPUs: the driver's version, and each GPU's memory."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.errors import HostError

NVIDIA_SMI = "nvidia-smi"
KERNEL_MODULE = Path("/proc/driver/nvidia/version")
# The oldest driver for each CUDA release (CUDA's release notes, "CUDA Driver"; Linux x86-64).
OLDEST_DRIVER = {12: 525, 13: 580}


@dataclass(frozen=True)
class Gpu:
    """One GPU's name and memory, in MiB."""

    name: str
    free: int
    total: int


def driver_version() -> str | None:
    """The driver's version, such as "580.65.06", by nvidia-smi or else the kernel's module; None without a driver."""
    if shutil.which(NVIDIA_SMI):
        try:
            return _query("driver_version")[0]
        except HostError:
            # Not there in every container, and broken by an update until the next boot; the module still says it.
            pass
    if not KERNEL_MODULE.is_file():
        return None
    found = re.search(r"Kernel Module.*?\s(\d{3,}(?:\.\d+)+)\s", KERNEL_MODULE.read_text(encoding="utf-8"))
    return found[1] if found else None


def gpus(named: str = "") -> list[Gpu]:
    """The GPUs that are named as CUDA_VISIBLE_DEVICES names them, or else every one of the machine.

    Raises HostError where nvidia-smi is not there, fails, or names none.
    """
    rows = [line.split(", ") for line in _query("name,memory.free,memory.total", *([f"--id={named}"] if named else []))]
    return [Gpu(name, int(free), int(total)) for name, free, total in rows]


def _query(fields: str, *options: str) -> list[str]:
    command = [NVIDIA_SMI, *options, f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostError(f"nvidia-smi does not run ({error}). Install NVIDIA's driver with its programs.") from error
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        said = (done.stdout + done.stderr).strip() or "nothing"
        raise HostError(f"nvidia-smi ended with status {done.returncode} and said: {said}. Mend the driver first.")
    return lines
