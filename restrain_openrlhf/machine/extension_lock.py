"""Lets one process at a time build or load a compiled extension, by a lock that ends with its process."""

import fcntl
import os

from restrain_openrlhf.machine.host_methods import HostMethod
from restrain_openrlhf.machine.patching import Replacement


class ProcessLock:
    """Takes the place of torch's FileBaton (torch/utils/file_baton.py), a file whose existence is the lock.

    A process that is killed while it holds that one leaves the file behind, and every later process waits for ever:
    DeepSpeed's, as it loads an optimizer's kernels. This can go when torch's lock ends with its process too.
    """

    def __init__(self, lock_file_path: str, wait_seconds: float = 0.1, warn_after_seconds: float | None = None) -> None:
        del wait_seconds, warn_after_seconds
        # A file of its own: one with torch's name would hold up processes that have torch's lock.
        self._path = f"{lock_file_path}.process"
        self._file: int | None = None

    def try_acquire(self) -> bool:
        """Whether this process has the lock now."""
        file = os.open(self._path, os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        self._file = file
        return True

    def wait(self) -> None:
        """Until whoever has the lock gives it back, or ends."""
        with open(self._path, "a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)

    def release(self) -> None:
        """Give the lock back."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


# torch/utils/cpp_extension.py, _jit_compile, takes it for an extension's folder.
EXTENSION_LOCK = (
    *(
        HostMethod("torch.utils.file_baton", f"FileBaton.{name}", "(self)")
        for name in ("try_acquire", "wait", "release")
    ),
    Replacement(
        "torch.utils.cpp_extension",
        "FileBaton",
        "(lock_file_path, wait_seconds, warn_after_seconds)",
        "restrain_openrlhf.machine.extension_lock:ProcessLock",
    ),
)
