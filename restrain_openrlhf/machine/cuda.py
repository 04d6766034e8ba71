"""The host's stack on NVIDIA GPUs, with or without a CUDA toolkit and flash-attn."""

import os
from collections.abc import Mapping
from typing import Any

from restrain_openrlhf.machine.cuda_toolkit import EXTENSION_LOCK, why_not_compiled
from restrain_openrlhf.machine.devices import Device, Unsupported
from restrain_openrlhf.machine.flash_attention import (
    ATTENTION,
    by_torch,
    has_extension,
    provide_flash_attention,
    unsupported,
)
from restrain_openrlhf.machine.patching import Wrapping, expect

SAMPLER = "VLLM_USE_FLASHINFER_SAMPLER"
# DeepSpeed reads `torch_adam` and hands the other parameters of an optimizer to torch (runtime/engine.py,
# get_optimizer_configuration).
TORCH_ADAM = {"torch_adam": True, "fused": True}
# The major compute capability of B100, B200 and GB200. RTX 50 has 12, for which vLLM takes FlashAttention.
BLACKWELL = 10
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
    expect((ADAM, ATTENTION, ENGINE, *EXTENSION_LOCK))


def torch_adam_without_nvcc(wrapped: Any, _strategy: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Wraps DeepspeedStrategy.get_ds_train_config: use torch's Adam if DeepSpeed's cannot be compiled.

    utils/deepspeed/deepspeed.py asks for DeepSpeed's Adam, which is compiled when the optimizer is made.
    """
    config: dict[str, Any] = wrapped(*args, **kwargs)
    optimizer = config.get("optimizer")
    if optimizer is None or optimizer["type"] != "AdamW" or why_not_compiled() is None:
        return config
    return {**config, "optimizer": {**optimizer, "params": {**optimizer["params"], **TORCH_ADAM}}}


def attention_without_nvcc(wrapped: Any, arguments: Any, args: Any, kwargs: Any) -> None:
    """Wraps vLLM's EngineArgs.__post_init__: use vLLM's flash attention if FlashInfer's cannot be compiled.

    On compute capability 10 vLLM 0.29 prefers FlashInfer for heads of 64, 128 and 256, whether or not there is an nvcc
    (platforms/cuda.py, _get_backend_priorities). The demo's smaller heads do not show this. Models with latent
    attention (MLA) have other kernels and are left to vLLM, and a backend that the caller names stays.
    """
    wrapped(*args, **kwargs)
    if arguments.attention_backend is not None or why_not_compiled() is None or capability() != BLACKWELL:
        return
    from transformers import PretrainedConfig  # noqa: PLC0415 - vLLM reads it next
    from vllm.v1.attention.backends.registry import AttentionBackendEnum  # noqa: PLC0415 - being imported by vLLM

    config, _ = PretrainedConfig.get_config_dict(arguments.model)
    if not config.get("kv_lora_rank"):
        arguments.attention_backend = AttentionBackendEnum.FLASH_ATTN


def capability() -> int | None:
    """The GPU's major compute capability, as the driver reports it. No CUDA context is made."""
    from vllm.platforms import current_platform  # noqa: PLC0415 - costs seconds

    found = current_platform.get_device_capability()
    return None if found is None else found.major


# The hook wraps the same method (hook/fixes/training_step.py). Both wrappers act, in either order.
ADAM = Wrapping(
    "openrlhf.utils.deepspeed.deepspeed",
    "DeepspeedStrategy.get_ds_train_config",
    "(self, optim_dict, *, max_norm)",
    "restrain_openrlhf.machine.cuda:torch_adam_without_nvcc",
)
ENGINE = Wrapping(
    "vllm.engine.arg_utils",
    "EngineArgs.__post_init__",
    "(self)",
    "restrain_openrlhf.machine.cuda:attention_without_nvcc",
)
