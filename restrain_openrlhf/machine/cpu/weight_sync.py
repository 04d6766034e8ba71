"""Sends weights from the trainer to vLLM without NCCL: tensors are broadcast by Gloo and loaded all at once."""

import socket
from collections import deque
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class GlooGroup:
    """The one method of vLLM's PyNcclCommunicator that OpenRLHF calls, over a group of torch's Gloo."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def broadcast(self, tensor: "torch.Tensor", src: int = 0, stream: object = None) -> None:
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
