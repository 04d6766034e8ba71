"""Digests of the weights that vLLM computes with, made in its workers and written after each weight sync."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import ray

from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.data.outputs import replacing
from restrain_openrlhf.hook.install.environment import config_here
from restrain_openrlhf.records.folder import RunFolder

# The SHA-256 digests of one vLLM worker, by the weight's name in vLLM.
Digests = dict[str, str]


# The workers' methods that the host calls for every weight (trainer/ray/vllm_engine.py). Their last argument says
# whether the weight is the last one.
TAKES_A_WEIGHT = ("update_weight", "update_weight_cuda_ipc")


def watch(engine: Any) -> None:
    """From now on, write a file with the digests of all of the engine's workers after each weight sync."""
    call = engine.collective_rpc

    async def collective_rpc(method: Any, *args: Any, **kwargs: Any) -> Any:
        answer = await call(method, *args, **kwargs)
        if method in TAKES_A_WEIGHT and kwargs["args"][-1]:
            write_digests(await call(held))
        return answer

    engine.collective_rpc = collective_rpc


def write_digests(workers: Sequence[Digests]) -> None:
    """Write the file of this rollout actor's engine, in the run's folder."""
    metrics = config_here().metrics
    assert metrics is not None, "the gate refuses digests without it"
    folder = RunFolder(metrics.parent).weight_digests
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / f"{ray.get_runtime_context().get_actor_id()}.json") as file:
        file.write(dump(workers))


def held(worker: Any) -> Digests:
    """Runs in a vLLM worker: the digests of the weights that it computes with. Layout does not matter, only bits."""
    return {name: hashlib.sha256(_bytes(tensor)).hexdigest() for name, tensor in _weights(worker)}


def _bytes(tensor: Any) -> Any:
    import torch  # noqa: PLC0415 - vLLM's worker has it already

    return tensor.detach().contiguous().view(torch.uint8).cpu().numpy()


def _weights(worker: Any) -> Iterator[tuple[str, Any]]:
    """All parameters in memory, and the product of each linear layer and output head with the identity matrix.

    vLLM's CPU build computes with a packed copy that nothing can read, and empties the parameter. The product with the
    identity is the transposed weight, bit for bit, because each of its sums has only one term that is not zero.
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
