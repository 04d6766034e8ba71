"""The CUDA toolkit's compiler, nvcc: where it is, and whether it compiles for the installed torch.

For `make install-flash`, `python -m restrain_openrlhf.machine.cuda_toolkit` ends with status 1 and the reason if it
does not.
"""

import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.errors import HostError

DEFAULT_HOME = Path("/usr/local/cuda")


@dataclass(frozen=True)
class Nvcc:
    """A compiler and its CUDA version, such as "13.0"."""

    path: Path
    version: str


def find_nvcc() -> Nvcc | None:
    """The nvcc that torch and DeepSpeed would call: CUDA_HOME's, then PATH's, then the default folder's.

    None if there is none. Raises HostError for an nvcc that does not report its version.
    """
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    on_path = shutil.which("nvcc")
    path = Path(home or (Path(on_path).parent.parent if on_path else DEFAULT_HOME)) / "bin" / "nvcc"
    return Nvcc(path, _version(path)) if path.is_file() else None


def _version(path: Path) -> str:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise HostError(f"{path} does not run ({error}). Install the CUDA toolkit anew, or unset CUDA_HOME.") from error
    found = re.search(r"release (\d+\.\d+)", done.stdout)
    if found is None:
        raise HostError(f"{path} --version names no release. Install the CUDA toolkit anew, or unset CUDA_HOME.")
    return found[1]


def cuda_of_torch() -> str | None:
    """The CUDA version that the installed torch was built for, such as "13.0"; None without CUDA, or without torch.

    It is read from torch's version.py, because importing torch costs seconds and every process asks.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    found: str | None = runpy.run_path(str(Path(spec.origin).with_name("version.py")))["cuda"]
    return found


def why_not_compiled() -> str | None:
    """Why CUDA code cannot be compiled here for the installed torch; None if it can."""
    wanted = cuda_of_torch()
    try:
        nvcc = find_nvcc()
    except HostError as error:
        return str(error)
    if wanted is None:
        return "no torch with CUDA is installed"
    if nvcc is None:
        return "there is no nvcc"
    if nvcc.version != wanted:
        return f"{nvcc.path} is of CUDA {nvcc.version}, and torch of CUDA {wanted}"
    return None


def main() -> None:
    """End with status 1 and the reason if CUDA code cannot be compiled; otherwise do nothing."""
    reason, wanted = why_not_compiled(), cuda_of_torch()
    if reason is not None:
        toolkit = f"Install the CUDA toolkit {wanted} and set CUDA_HOME to its folder."
        sys.exit(
            f"error: CUDA code cannot be compiled: {reason}. {toolkit if wanted else 'First `make install STACK=gpu`.'}"
        )


if __name__ == "__main__":
    main()
