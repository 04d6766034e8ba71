"""NVIDIA GPUs: the stack with or without flash-attn, and what the toolkit's compiler, nvcc, can compile for it."""

import fcntl
import importlib.util
import os
import re
import runpy
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from restrain_openrlhf.errors import HostError
from restrain_openrlhf.machine.device import Device, Unsupported
from restrain_openrlhf.machine.flash_attention import (
    ATTENTION,
    by_torch,
    has_extension,
    provide_flash_attention,
    unsupported,
)
from restrain_openrlhf.machine.patching import HostMethod, Replacement, Wrapping, expect

DEFAULT_HOME = Path("/usr/local/cuda")
SAMPLER = "VLLM_USE_FLASHINFER_SAMPLER"
# DeepSpeed reads `torch_adam` and hands the other parameters of an optimizer to torch (runtime/engine.py,
# get_optimizer_configuration).
TORCH_ADAM = {"torch_adam": True, "fused": True}
# On a shared GPU OpenRLHF sends memory handles (CUDA IPC), but only with this backend. With another one, NCCL would
# have to connect a GPU with itself (trainer/ray/ppo_actor.py, ActorPPOTrainer; utils/distributed_util.py).
BACKEND_OF_COLOCATED = Unsupported(
    "vllm.sync_backend",
    "with train.colocate_all the policy and vLLM share GPUs, and there OpenRLHF sends weights by nccl, its default, "
    "alone",
    when=lambda flags: (
        flags["train.colocate_all"] and not flags["train.async_enable"] and flags["vllm.sync_backend"] != "nccl"
    ),
)


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
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError as error:
        said = str(error)
    found = re.search(r"release (\d+\.\d+)", said)
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
        "restrain_openrlhf.machine.cuda:ProcessLock",
    ),
)


def cuda() -> Device:
    """CUDA as OpenRLHF expects it, with flags that need flash-attn unsupported if it is not installed."""
    flash = has_extension()
    return Device(
        name="cuda",
        install=install,
        environment=environment(),
        host_flags={} if flash else {"ds.attn_implementation": "sdpa"},
        unsupported=(
            BACKEND_OF_COLOCATED,
            *by_torch(),
            *(() if flash else unsupported("which is not installed; `make install-flash` builds it")),
        ),
    )


def environment() -> Mapping[str, str]:
    """Without nvcc, turn off FlashInfer's sampler in vLLM, whose kernels nvcc compiles at their first call.

    A value that the user has set stays.
    """
    return {} if why_not_compiled() is None else {SAMPLER: os.environ.get(SAMPLER, "0")}


def install() -> None:
    """Prepare this process. Host modules are adapted as they are imported; nothing heavy is imported here."""
    os.environ.update(environment())
    provide_flash_attention()
    expect((ADAM, ATTENTION, *EXTENSION_LOCK))


def torch_adam_without_nvcc(wrapped: Any, _strategy: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Wraps DeepspeedStrategy.get_ds_train_config: use torch's Adam if DeepSpeed's cannot be compiled.

    utils/deepspeed/deepspeed.py asks for DeepSpeed's Adam, which is compiled when the optimizer is made.
    """
    config: dict[str, Any] = wrapped(*args, **kwargs)
    optimizer = config.get("optimizer")
    if optimizer is None or optimizer["type"] != "AdamW" or why_not_compiled() is None:
        return config
    return {**config, "optimizer": {**optimizer, "params": {**optimizer["params"], **TORCH_ADAM}}}


# The hook wraps the same method (hook/fixes/training_step.py). Both wrappers act, in either order.
ADAM = Wrapping(
    "openrlhf.utils.deepspeed.deepspeed",
    "DeepspeedStrategy.get_ds_train_config",
    "(self, optim_dict, *, max_norm)",
    "restrain_openrlhf.machine.cuda:torch_adam_without_nvcc",
)
