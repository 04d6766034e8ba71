"""How much memory this machine's GPUs have, asked of the driver's own program: no CUDA context is made."""

import os
import shutil
import subprocess

from restrain_openrlhf.hook.devices import detect

QUERY = ("--query-gpu=memory.total", "--format=csv,noheader,nounits")
MIB = 2**20


def visible_memory() -> int | None:
    """Bytes of the smallest GPU that this process may use; None on the CPU stack, and where no driver answers.

    None too where RAY_ADDRESS names a cluster: a run is on its GPUs then, which may be others.
    """
    program = shutil.which("nvidia-smi")
    if program is None or "RAY_ADDRESS" in os.environ or not detect().has_gpus:
        return None
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "").strip()
    chosen = (f"--id={named}",) if named else ()
    done = subprocess.run([program, *chosen, *QUERY], capture_output=True, text=True, check=False)
    sizes = [int(line) for line in done.stdout.splitlines() if line.strip().isdigit()]
    return min(sizes) * MIB if done.returncode == 0 and sizes else None
