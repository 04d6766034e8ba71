"""Stand-ins on a CPU for what the host asks of CUDA by name, for products that a CPU lacks, and for the weight sync."""

import socket
import sys
from collections import deque
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from restrain_openrlhf.machine.patching import patches_in

# Room for 65,536 tokens of the demo's model.
CACHE_BYTES = 256 * 2**20
# The fewest that vLLM takes on a CPU. Rollouts share whole blocks of their prompt, and many prompts have less than 128.
BLOCK_TOKENS = 32


def current_device() -> Any:
    """The CPU. OpenRLHF calls this and the next four without CUDA too (trainer/ray/launcher.py, ppo_actor.py).

    torch's compiler needs a separate function for each of them.
    """
    import torch  # noqa: PLC0415 - being imported right now, by whoever asked for it

    return torch.device("cpu")


def set_device(_device: object) -> None:
    """Nothing: there is one device."""


def empty_cache() -> None:
    """There is none."""


def synchronize(_device: object = None) -> None:
    """Nothing runs beside the program."""


def current_stream(_device: object = None) -> None:
    """There is none."""


def buffer_on_cpu(wrapped: Callable[..., None], buffer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Wraps NaiveReplayBuffer.__init__, which makes target_device `cuda:<current device>` from a number."""
    import torch  # noqa: PLC0415 - see current_device

    with patch.object(torch.cuda, "current_device", lambda: 0):
        wrapped(*args, **kwargs)
    buffer.target_device = current_device()


def mesh_on_cpu(wrapped: Callable[..., Any], _: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Wraps init_device_mesh, of which setup_distributed (utils/deepspeed/deepspeed.py) asks a "cuda" mesh."""
    return wrapped("cpu", *args[1:], **kwargs)


def small_cache_whole_prompts(
    wrapped: Callable[[], None], arguments: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Wraps vLLM's EngineArgs.__post_init__: by default, no chunked prefill, and a small KV cache in small blocks.

    OpenRLHF has no flag for these. vLLM fills the whole cache with zeros in every run; VLLM_CPU_KVCACHE_SPACE, in GiB,
    sets another size. With chunked prefill, vLLM 0.29 rewinds the request's random generator after part of a prompt
    (v1/worker/gpu_model_runner.py, _bookkeeping_sync), which torch's CPU generators cannot do. That half can go when
    vLLM rewinds CPU generators in another way.
    """
    wrapped(*args, **kwargs)
    if arguments.enable_chunked_prefill is None:
        arguments.enable_chunked_prefill = False
    if arguments.kv_cache_memory_bytes is None:
        arguments.kv_cache_memory_bytes = CACHE_BYTES
    if arguments.block_size is None:
        arguments.block_size = BLOCK_TOKENS


def adam_step(wrapped: Callable[..., Any], optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Wraps FusedAdam.step, so that the CPU kernel computes beta^t as it does after a restart, by pow.

    The kernel otherwise multiplies beta^t up step by step, which differs in the last bit (csrc/includes/cpu_adam.h,
    IncrementStep). After a step 0 on empty tensors, the next step does not follow the kernel's last one, so it uses
    pow. CUDA's kernel always uses pow; this can go when the CPU's does.
    """
    import torch  # noqa: PLC0415 - the optimizer has it already

    group = optimizer.param_groups[0]
    sys.modules["deepspeed.ops.adam.fused_adam"].multi_tensor_applier(
        optimizer.multi_tensor_adam,
        optimizer._dummy_overflow_buf,
        [[torch.empty(0)]] * 4,
        group["lr"],
        *group["betas"],
        group["eps"],
        0,
        optimizer.adam_w_mode,
        1,
        group["weight_decay"],
    )
    return wrapped(*args, **kwargs)


def varlen_attn(_wrapped: object, _module: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Replaces torch's variable-length attention, as machine/flash_attention.py calls it; it needs CUDA's flash kernel.

    Attention within each packed sequence, one after the other; q, k and v are (tokens, heads, d). Sequence i has the
    tokens from `bounds[i]` to `bounds[i + 1]`, so there is one bound more than there are sequences. In bfloat16 it is
    rounded as by `attention`.
    """
    import torch  # noqa: PLC0415 - the caller has it

    query, key, value, bounds, *_ = args
    dtype = query.dtype
    if dtype is torch.bfloat16 and not has_bfloat16():
        query, key, value = query.float(), key.float(), value.float()
    lengths, is_causal = bounds.diff().tolist(), kwargs["window_size"] == (-1, 0)
    whole = (each.transpose(0, 1).unsqueeze(0).split(lengths, dim=2) for each in (query, key, value))
    found = [
        torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=is_causal, scale=kwargs["scale"], enable_gqa=kwargs["enable_gqa"]
        )
        for q, k, v in zip(*whole, strict=True)
    ]
    return torch.cat(found, dim=2)[0].transpose(0, 1).to(dtype)


@cache
def has_bfloat16() -> bool:
    """Whether oneDNN multiplies in bfloat16 on this processor: with AVX-512 it does."""
    import torch  # noqa: PLC0415 - the caller has it

    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def linear(wrapped: Callable[..., Any], layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Wraps torch.nn.Linear.forward: bfloat16 is multiplied in fp32 where the processor has no instructions for it.

    torch's own product is 3 to 9 times as slow there. Both add up in fp32 and round the result to bfloat16 once, as
    the backward pass does with each gradient. This can go when torch converts by itself.
    """
    import torch  # noqa: PLC0415 - see has_bfloat16

    if layer.weight.dtype is not torch.bfloat16 or has_bfloat16():
        return wrapped(*args, **kwargs)
    return product_in_fp32(args[0] if args else kwargs["input"], layer.weight, layer.bias)


def attention(wrapped: Callable[..., Any], _: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Wraps transformers' attention by torch, whose backward pass in bfloat16 is ten times as slow on such processors.

    Query, key and value become fp32, and the result is rounded to bfloat16 once.
    """
    import torch  # noqa: PLC0415 - see has_bfloat16

    module, query, *others = args
    if query.dtype is not torch.bfloat16 or has_bfloat16():
        return wrapped(*args, **kwargs)
    found, weights = wrapped(module, query.float(), *(other.float() for other in others[:2]), *others[2:], **kwargs)
    return found.to(query.dtype), weights


def vllm_linear(wrapped: Callable[..., None], _: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Wraps what chooses the product of each of vLLM's layers, for the same reason as `linear`.

    vLLM calls it again whenever a layer has new weights. So the fp32 weights are kept: to convert them for every token
    takes about as long as the product with the tokens of a few rollouts.
    """
    import torch  # noqa: PLC0415 - see has_bfloat16

    wrapped(*args, **kwargs)
    layer = args[0] if args else kwargs["layer"]
    if layer.weight.dtype is torch.bfloat16 and layer.weight.ndim == 2 and not has_bfloat16():  # noqa: PLR2004
        weight = layer.weight.data.float()
        layer.cpu_linear = lambda input, _weight, bias: product_in_fp32(input, weight, bias)


def product_in_fp32(input: Any, weight: Any, bias: Any) -> Any:
    """input @ weight.T + bias, of (rows, k), (n, k), (n,) and any type; rounded to the type of `input`."""
    import torch  # noqa: PLC0415 - see has_bfloat16

    product = torch.nn.functional.linear(input.float(), weight.float(), None if bias is None else bias.float())
    return product.to(input.dtype)


class GlooGroup:
    """The one method of vLLM's PyNcclCommunicator that OpenRLHF calls, over a group of torch's Gloo.

    So weights go from the trainer to vLLM without NCCL.
    """

    def __init__(self, group: Any) -> None:
        self._group = group

    def broadcast(self, tensor: Any, src: int = 0, stream: object = None) -> None:
        """Send `tensor`, of any shape, from rank `src`; fill it on the other ranks. A CPU has no streams.

        Returns on rank `src` when the tensor may change. Its own bytes are sent, not those of the buffer it views.
        """
        del stream
        self._group.broadcast(tensor.detach().contiguous(), src).wait()


def connect_over_tcp(master_address: str, master_port: int, rank: int, world_size: int, device: object) -> GlooGroup:
    """Replaces `stateless_init_process_group` (openrlhf/utils/distributed_util.py), with the same arguments.

    The group is not torch's default one, which the process has already. Gloo would listen where the host's name leads,
    which may be an address that other hosts cannot reach; here it is the address from which this one reaches rank 0.
    """
    # As Any, because torch's types do not have the options of Gloo.
    distributed: Any = import_module("torch.distributed")
    gloo = distributed.ProcessGroupGloo
    del device
    store = distributed.TCPStore(master_address, master_port, world_size, is_master=rank == 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        route.connect((master_address, master_port))
        own_address = route.getsockname()[0]
    options = gloo._Options()
    options._devices = [gloo.create_device(hostname=own_address)]
    return GlooGroup(gloo(store, rank, world_size, options))


def update_weight(worker: Any, name: str, dtype: Any, shape: tuple[int, ...], empty_cache: bool = False) -> None:
    """Replaces `WorkerWrap.update_weight` (openrlhf/trainer/ray/vllm_worker_wrap.py), with the same arguments.

    vLLM prepacks weights on a CPU, so parameters cannot be loaded one by one. They are kept until the last one, which
    OpenRLHF marks with `empty_cache`, and are then reloaded together, each freed as soon as vLLM has its copy.
    """
    import torch  # noqa: PLC0415 - vLLM's worker has it already

    weight = torch.empty(shape, dtype=dtype)
    worker._model_update_group.broadcast(weight, src=0)
    received = worker.__dict__.setdefault("_received_weights", deque())
    received.append((name, weight))
    if empty_cache:
        del worker._received_weights, weight
        worker.model_runner.reload_weights(weights_iterator=(received.popleft() for _ in range(len(received))))
        pack_output_heads(worker.model_runner.get_model())


def pack_output_heads(model: Any) -> None:
    """Pack each output head of vLLM's `model` from its current weight.

    A head that is tied to the embedding is not a parameter of the trainer's model, so no weight is sent for it. vLLM
    (model_executor/model_loader/reload/layerwise.py) then leaves the head's packed copy as it was, although the
    embedding has a new weight. This can go when reloading an embedding also packs the head that is tied to it.
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead  # noqa: PLC0415 - costs seconds

    for head in model.modules():
        if isinstance(head, ParallelLMHead):
            head.quant_method.process_weights_after_loading(head)


PATCHES = patches_in(yaml.safe_load(Path(__file__).with_name("patches.yaml").read_text(encoding="utf-8")), __package__)
