"""In rollout actors and vLLM's workers: digests of the weights that vLLM computes with, written after each sync."""

import hashlib
from collections.abc import Iterator
from typing import Any

import ray

from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.data.outputs import replacing
from restrain_openrlhf.hook.install.environment import config_here
from restrain_openrlhf.machine.patching import original_of
from restrain_openrlhf.records.folder import RunFolder

# Of one vLLM worker: SHA-256 by the weight's name in vLLM.
Digests = dict[str, str]


async def update_weight(actor: Any, name: str, dtype: Any, shape: Any, empty_cache: bool = False) -> Any:
    """Takes the place of RolloutRayActor.update_weight: the host calls it for every parameter, marking the last."""
    answer = await original_of(actor, "update_weight")(actor, name, dtype, shape, empty_cache)
    if empty_cache:
        await write_digests(actor)
    return answer


async def update_weight_cuda_ipc(
    actor: Any, name: str, dtype: Any, shape: Any, ipc_handles: Any, empty_cache: bool = False
) -> Any:
    """Takes the place of RolloutRayActor.update_weight_cuda_ipc, as `update_weight`."""
    answer = await original_of(actor, "update_weight_cuda_ipc")(actor, name, dtype, shape, ipc_handles, empty_cache)
    if empty_cache:
        await write_digests(actor)
    return answer


async def write_digests(actor: Any) -> None:
    """Where the configuration asks for it: a file for the actor's engine, with the digests of each of its workers."""
    config = config_here()
    if not config.weight_digests or config.metrics is None:
        return
    workers: list[Digests] = await actor.llm.collective_rpc(held)
    folder = RunFolder(config.metrics.parent).weight_digests
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / f"{ray.get_runtime_context().get_actor_id()}.json") as file:
        file.write(dump(workers))


def held(worker: Any) -> Digests:
    """Inside a vLLM worker: of each weight as it computes with it. Equal digests are equal bits, of any layout."""
    return {name: hashlib.sha256(_bytes(tensor)).hexdigest() for name, tensor in _weights(worker)}


def _bytes(tensor: Any) -> Any:
    import torch  # noqa: PLC0415 - vLLM's worker has it already

    return tensor.detach().contiguous().view(torch.uint8).cpu().numpy()


def _weights(worker: Any) -> Iterator[tuple[str, Any]]:
    """Parameters as they lie in memory; and of each linear layer and output head its product with the identity.

    vLLM's CPU build computes with a packed copy that nothing can read, and empties the parameter. The product with the
    identity is the weight itself, transposed, to the last bit: each of its sums has one term that is not zero.
    """
    import torch  # noqa: PLC0415 - vLLM's worker has both already
    from vllm.model_executor.layers.linear import LinearBase  # noqa: PLC0415
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead  # noqa: PLC0415

    model = worker.model_runner.get_model()
    yield from ((name, parameter) for name, parameter in model.named_parameters() if parameter.numel())
    for name, layer in model.named_modules(remove_duplicate=False):
        if isinstance(layer, LinearBase | ParallelLMHead):
            size = layer.embedding_dim if isinstance(layer, ParallelLMHead) else layer.input_size_per_partition
            identity = torch.eye(size, dtype=worker.model_config.dtype, device=worker.device)
            with torch.inference_mode():
                yield f"{name} (computed)", layer.quant_method.apply(layer, identity)
