"""The host's stack without a GPU: stand-ins for what OpenRLHF 0.11.2 and vLLM 0.29 take from CUDA.

Nothing imports this package by name. It is found by its entry points, and does nothing if CUDA is present.
"""

import atexit
import gc
import os
import sys
from pathlib import Path

from restrain_openrlhf.machine.cpu.host import PATCHES
from restrain_openrlhf.machine.cuda import EXTENSION_LOCK
from restrain_openrlhf.machine.device import Device, Unsupported
from restrain_openrlhf.machine.devices import is_cuda_stack
from restrain_openrlhf.machine.flash_attention import ATTENTION, by_torch, provide_flash_attention, unsupported
from restrain_openrlhf.machine.patching import expect

ENVIRONMENT = {
    "DS_ACCELERATOR": "cpu",
    # Keep vLLM's engine and worker in few processes, because each process imports the whole stack again.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # vLLM compiles its sampler and OpenRLHF its entropy even in eager mode: seconds a run, to save microseconds a step.
    "TORCH_COMPILE_DISABLE": "1",
    # vLLM would otherwise bind its threads to cores of its own choosing and leave the others idle.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # Several processes share a few cores: more than one thread each is what makes a step slow (measured).
    "OMP_NUM_THREADS": "1",
    # Where a user asks for more threads, those that wait leave the cores to the process whose turn it is.
    "OMP_WAIT_POLICY": "passive",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "true",
}


def install() -> None:
    """Prepare this process. Host modules are adapted as they are imported; nothing heavy is imported here."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    _collect_less_often()
    _own_programs_first()
    provide_flash_attention()
    expect((*PATCHES, ATTENTION, *EXTENSION_LOCK))


def _collect_less_often() -> None:
    """Collect garbage less often: imports make millions of objects that stay, and walking them takes seconds."""
    gc.set_threshold(100_000, 50, 1000)
    atexit.register(gc.freeze)


def _own_programs_first() -> None:
    """Put this environment's programs first on PATH: DeepSpeed's builds with two versions of ninja undo each other."""
    folders = [str(Path(sys.executable).parent), *os.environ.get("PATH", os.defpath).split(os.pathsep)]
    os.environ["PATH"] = os.pathsep.join(dict.fromkeys(folders))


def install_in_vllm() -> None:
    """Prepare vLLM's own worker process, which Ray does not start. It is an entry point, `vllm.general_plugins`."""
    if not is_cuda_stack():
        install()


DEVICE = Device(
    name="cpu",
    install=install,
    environment=ENVIRONMENT,
    host_flags={
        "ds.attn_implementation": "sdpa",
        "vllm.sync_backend": "gloo",
        "vllm.enforce_eager": True,
        "vllm.enable_prefix_caching": True,
    },
    engine_options={"enforce_eager": True},
    unsupported=(
        Unsupported(
            "vllm.sync_with_ray",
            "without CUDA, weights go to vLLM over TCP (restrain_openrlhf/machine/cpu/host.py)",
        ),
        *by_torch(),
        *unsupported("which needs CUDA"),
    ),
    has_gpus=False,
)
