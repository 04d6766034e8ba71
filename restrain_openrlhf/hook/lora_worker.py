"""Inside a vLLM worker of a LoRA run: what the host's sync sends is the adapter, and goes into its slot as it is.

vLLM adds B A x to what a layer gives, as the policy does. W + B A in bf16 would lose every entry of B A that is below
half a unit in the last place of W's (docs/decisions/0006-lora-sends-the-adapter.md).
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from openrlhf.trainer.ray.vllm_worker_wrap import WorkerWrap
from vllm.lora.lora_model import LoRAModel
from vllm.lora.peft_helper import PEFTHelper

from restrain_openrlhf.errors import PolicyMismatchError
from restrain_openrlhf.hook.lora_engine import ADAPTER_ID, ALPHA


class AdapterWorker(WorkerWrap):  # type: ignore[misc]
    """The host's extension of vLLM's worker (trainer/ray/vllm_worker_wrap.py), whose weights are an adapter's."""

    def start_adapter(self) -> None:
        """Put an adapter of nothing into the slot: requests name it before the first sync."""
        put_adapter(self, {})

    def update_weight(self, name: str, dtype: Any, shape: Any, empty_cache: bool = False) -> None:
        """As the host's, over NCCL or TCP. The last tensor of a sync comes with `empty_cache`."""
        receive(self, lambda: WorkerWrap.update_weight(self, name, dtype, shape, empty_cache), empty_cache)

    def update_weight_cuda_ipc(
        self, name: str, dtype: Any, shape: Any, ipc_handles: Any = None, empty_cache: bool = False
    ) -> None:
        """As the host's, from the trainer's memory on the same GPU."""
        receive(
            self,
            lambda: WorkerWrap.update_weight_cuda_ipc(self, name, dtype, shape, ipc_handles, empty_cache),
            empty_cache,
        )


class Receiver:
    """Stands for the worker's model while the host receives a tensor, and keeps it."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}

    @property
    def model(self) -> "Receiver":
        """Where the host, which has the model of a model runner load it, finds `load_weights`."""
        return self

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """A copy in main memory: with CUDA IPC the tensor is the trainer's."""
        self.tensors.update((name, tensor.detach().to("cpu", copy=True)) for name, tensor in weights)

    def reload_weights(self, weights_iterator: Iterable[tuple[str, torch.Tensor]]) -> None:
        """As a runner whose weights cannot be loaded one by one is given them (cpu/weight_sync.py)."""
        self.load_weights(weights_iterator)

    def get_model(self) -> torch.nn.Module:
        """A model without layers: nothing of the base is to be packed anew."""
        return torch.nn.Module()


def receive(worker: Any, host: Callable[[], None], is_last: bool) -> None:
    """Have the host receive one tensor; after the last one the adapter is put into its slot."""
    received: Receiver = worker.__dict__.setdefault("_restrain_received", Receiver())
    runner, worker.model_runner = worker.model_runner, received
    try:
        host()
    finally:
        worker.model_runner = runner
    if is_last:
        del worker._restrain_received
        put_adapter(worker, received.tensors)


def put_adapter(worker: Any, tensors: dict[str, torch.Tensor]) -> None:
    """Replace the adapter in the slot by one of these tensors, A (r, in) and B (out, r) by peft's names.

    Raises PolicyMismatchError where a layer of the adapter has no slot in vLLM's model, which would leave it out.
    """
    manager = worker.model_runner.lora_manager._adapter_manager
    adapter = _adapter_of(worker, manager, tensors)
    packed = {part for parts in manager.packed_modules.values() for part in parts}
    without_slot = sorted(adapter.loras.keys() - manager.modules.keys() - packed)
    if without_slot:
        raise PolicyMismatchError(
            f"vLLM's model has no slot for {len(without_slot)} of the adapter's {len(adapter.loras)} layers "
            f"({', '.join(without_slot[:3])} …), so rollouts would not be the policy's. Leave them out of "
            "ds.lora.target_modules."
        )
    manager.remove_adapter(ADAPTER_ID)
    manager.add_adapter(adapter)
    manager.activate_adapter(ADAPTER_ID)


def _adapter_of(worker: Any, manager: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """As vLLM makes one of a folder (lora/worker_manager.py, _load_adapter)."""
    if not tensors:
        return manager.create_dummy_lora(ADAPTER_ID, 1, {})
    rank = next(len(tensor) for name, tensor in tensors.items() if ".lora_A." in name)
    alpha = worker.vllm_config.additional_config[ALPHA]
    mapper = getattr(manager.model, "hf_to_vllm_mapper", None)
    return LoRAModel.from_lora_tensors(
        ADAPTER_ID,
        tensors,
        PEFTHelper(r=rank, lora_alpha=alpha, target_modules=[]),
        device="cpu",
        dtype=manager.lora_config.lora_dtype,
        weights_mapper=mapper and mapper.get_rename_mapper(),
        skip_prefixes=getattr(manager.model, "lora_skip_prefixes", None),
    )
