"""Compiled extensions: whether DeepSpeed's is built, and a lock by which one process at a time builds or loads one."""

import fcntl
import os
from pathlib import Path

from restrain_openrlhf.machine.cuda_toolkit import why_not_compiled
from restrain_openrlhf.machine.host_methods import HostMethod
from restrain_openrlhf.machine.patching import Replacement


class ProcessLock:
    """Replaces torch's FileBaton (torch/utils/file_baton.py), whose lock is the existence of a file.

    A process that is killed while it builds leaves torch's file behind, and every later process waits for ever, as
    DeepSpeed's does when it loads an optimizer's kernels. A process that has waited for a build then loads it, even if
    the build failed. This can go when torch's lock ends with its process, and a waiting process checks what it loads.
    """

    def __init__(self, lock_file_path: str, wait_seconds: float = 0.1, warn_after_seconds: float | None = None) -> None:
        del wait_seconds, warn_after_seconds
        # A file with torch's name would hold up processes that use torch's lock.
        self._path = f"{lock_file_path}.process"
        self._file: int | None = None

    def try_acquire(self) -> bool:
        """Wait for the lock and take it, so that torch always builds before it loads; ninja skips finished builds."""
        self._file = os.open(self._path, os.O_CREAT | os.O_RDWR)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        return True

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


# torch takes this lock on an extension's folder (torch/utils/cpp_extension.py, _jit_compile).
EXTENSION_LOCK = (
    *(HostMethod("torch.utils.file_baton", f"FileBaton.{name}", "(self)") for name in ("try_acquire", "release")),
    Replacement(
        "torch.utils.cpp_extension",
        "FileBaton",
        "(lock_file_path, wait_seconds, warn_after_seconds)",
        "restrain_openrlhf.machine.extension_lock:ProcessLock",
    ),
)


def first_build(has_gpus: bool) -> str:
    """What a training waits for where DeepSpeed's Adam is not compiled yet, as words; empty where it is.

    With GPUs and no nvcc nothing is compiled, because torch's Adam takes its place (machine/cuda.py).
    """
    if has_gpus and why_not_compiled() is not None:
        return ""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "torch_extensions")
    root = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cache)
    built = any(path.stat().st_size for path in root.glob("**/fused_adam/*.so"))
    return "" if built else "; DeepSpeed compiles its kernels first, which takes two to three minutes"
