"""What nvidia-smi says of a machine's GPUs: the driver's version, and each GPU's memory."""

import subprocess
from dataclasses import dataclass

from restrain_openrlhf.errors import HostError


@dataclass(frozen=True)
class Gpu:
    """One GPU's driver, such as "580.65.06", its name, and its memory in MiB."""

    driver: str
    name: str
    free: int
    total: int


def gpus(named: str = "") -> list[Gpu]:
    """The GPUs that are named as CUDA_VISIBLE_DEVICES names them, or else every one of the machine.

    Raises HostError where nvidia-smi is not there, fails, or names none.
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
