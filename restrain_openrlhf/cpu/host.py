"""Host modules that name CUDA directly, and how each is adapted."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from restrain_openrlhf.cpu.weight_sync import connect_over_tcp, update_weight
from restrain_openrlhf.hook.stand_ins import StandIn

# Room for 65,536 tokens of the demo's model.
CACHE_BYTES = 256 * 2**20


def _adapt_torch_cuda(cuda: ModuleType) -> None:
    """OpenRLHF calls these without asking whether there is CUDA (trainer/ray/launcher.py, ppo_actor.py)."""
    import torch  # noqa: PLC0415 - being imported right now, by whoever asked for it

    def replace(name: str, function: Callable[..., Any]) -> None:
        setattr(cuda, name, function)

    replace("current_device", lambda: torch.device("cpu"))
    replace("set_device", lambda _device: None)
    replace("empty_cache", lambda: None)
    replace("synchronize", lambda *_, **__: None)
    replace("current_stream", lambda *_, **__: None)


class _TorchOnCpu(ModuleType):
    """`torch` for a module that builds `torch.device(f"cuda:{...}")`."""

    def __getattr__(self, name: str) -> Any:
        import torch  # noqa: PLC0415 - see _adapt_torch_cuda

        return getattr(torch, name)

    @staticmethod
    def device(_name: object) -> Any:
        import torch  # noqa: PLC0415 - see _adapt_torch_cuda

        return torch.device("cpu")


def _adapt_replay_buffer(module: Any) -> None:
    """trainer/ppo_utils/replay_buffer.py: target_device is `cuda:<current device>`."""
    module.torch = _TorchOnCpu("torch")


def _adapt_deepspeed_strategy(module: Any) -> None:
    """utils/deepspeed/deepspeed.py: setup_distributed makes a "cuda" device mesh."""
    original = module.init_device_mesh
    module.init_device_mesh = lambda _device_type, *args, **kwargs: original("cpu", *args, **kwargs)


def _adapt_distributed_util(module: Any) -> None:
    """utils/distributed_util.py: weights travel to vLLM over NCCL."""
    module.stateless_init_process_group = connect_over_tcp


def _adapt_engine_arguments(module: Any) -> None:
    """vllm/engine/arg_utils.py: where nobody asks otherwise, whole prompts only and a small cache of keys and values.

    OpenRLHF has no flag for either. vLLM fills the whole cache with zeros in every run;
    VLLM_CPU_KVCACHE_SPACE, in GiB, gives it another size. After part of a prompt, vLLM 0.29 rewinds the request's own
    random generator (v1/worker/gpu_model_runner.py, _bookkeeping_sync), which torch's CPU generators cannot do; whole
    prompts can go when it rewinds CPU generators too.
    """
    original = module.EngineArgs.__post_init__

    def small_and_whole(arguments: Any) -> None:
        original(arguments)
        if arguments.enable_chunked_prefill is None:
            arguments.enable_chunked_prefill = False
        if arguments.kv_cache_memory_bytes is None:
            arguments.kv_cache_memory_bytes = CACHE_BYTES

    module.EngineArgs.__post_init__ = small_and_whole


def _adapt_vllm_worker(module: Any) -> None:
    """trainer/ray/vllm_worker_wrap.py: update_weight receives into CUDA memory and loads tensor by tensor."""
    module.WorkerWrap.update_weight = update_weight


def _adapt_fused_adam(module: Any) -> None:
    """deepspeed/ops/adam/fused_adam.py: the CPU kernel multiplies beta^t up step by step, with pow after a restart.

    The two differ in the last bit (csrc/includes/cpu_adam.h, IncrementStep). CUDA's kernel always uses pow; this can
    go when the CPU's does.
    """
    original = module.FusedAdam.step

    def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        _forget_powers(module, optimizer)
        return original(optimizer, *args, **kwargs)

    module.FusedAdam.step = step


def _forget_powers(module: Any, optimizer: Any) -> None:
    """Run step 0 on empty tensors, so that the next step does not follow the kernel's last one, and uses pow."""
    import torch  # noqa: PLC0415 - the optimizer has it already

    group, nothing = optimizer.param_groups[0], [torch.empty(0)]
    module.multi_tensor_applier(
        optimizer.multi_tensor_adam,
        optimizer._dummy_overflow_buf,
        [nothing] * 4,
        group["lr"],
        *group["betas"],
        group["eps"],
        0,
        optimizer.adam_w_mode,
        1,
        group["weight_decay"],
    )


STAND_INS = (
    StandIn(
        "torch.cuda",
        _adapt_torch_cuda,
        {
            "current_device": "()",
            "set_device": "(device)",
            "empty_cache": "()",
            "synchronize": "(device)",
            "current_stream": "(device)",
        },
    ),
    StandIn(
        "deepspeed.ops.adam.fused_adam",
        _adapt_fused_adam,
        {"FusedAdam.step": "(self, closure, grads, output_params, scale, grad_norms, grad_scaler)"},
    ),
    StandIn(
        "openrlhf.trainer.ppo_utils.replay_buffer",
        _adapt_replay_buffer,
        {"NaiveReplayBuffer.__init__": "(self, sample_batch_size, limit, cpu_offload, packing_samples, dynamic_batch)"},
    ),
    StandIn(
        "openrlhf.utils.deepspeed.deepspeed",
        _adapt_deepspeed_strategy,
        {"init_device_mesh": "(device_type, mesh_shape, *, mesh_dim_names, backend_override)"},
    ),
    StandIn(
        "openrlhf.utils.distributed_util",
        _adapt_distributed_util,
        {"stateless_init_process_group": "(master_address, master_port, rank, world_size, device)"},
    ),
    StandIn("vllm.engine.arg_utils", _adapt_engine_arguments, {"EngineArgs.__post_init__": "(self)"}),
    StandIn(
        "openrlhf.trainer.ray.vllm_worker_wrap",
        _adapt_vllm_worker,
        {"WorkerWrap.update_weight": "(self, name, dtype, shape, empty_cache)"},
    ),
)
