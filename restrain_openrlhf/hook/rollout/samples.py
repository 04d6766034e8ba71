"""The host's SamplesGenerator and rollout actors: the run's end, seeds, order, tokenizer, and digests of weights."""

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

import ray

from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.data.outputs import replacing
from restrain_openrlhf.hook.install.environment import config_here
from restrain_openrlhf.hook.rollout.group_columns import PLACE
from restrain_openrlhf.hook.rollout.training_data import PROGRESS, Progress, TrainingRow, with_past
from restrain_openrlhf.machine.patching import original_of
from restrain_openrlhf.method import build
from restrain_openrlhf.records.folder import RunFolder

PROMPTS_POSITION, LABELS_POSITION = 0, 1
# The SHA-256 digests of one vLLM worker, by the weight's name in vLLM.
Digests = dict[str, str]
# The workers' methods that the host calls for every weight (trainer/ray/vllm_engine.py). Their last argument says
# whether the weight is the last one.
TAKES_A_WEIGHT = ("update_weight", "update_weight_cuda_ipc")


def generate_samples(wrapped: Callable[..., Any], generator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Wraps SamplesGenerator.generate_samples (samples_generator.py): one training step's rollouts.

    After the last step it returns no samples, which ends the host's loops (PPOTrainer.fit).
    """
    progress, config = PROGRESS.setdefault(generator, Progress()), config_here()
    if config.steps is not None and progress.steps >= config.steps:
        return [], None, 0, True
    samples, *rest = wrapped(*args, **kwargs)
    progress.steps += bool(samples)
    if config.seeded_rollouts:
        # Sort by the order of dispatch. The host returns groups in the order in which they were completed.
        samples = sorted(samples, key=lambda sample: int(sample.info[PLACE].item()))
    return samples, *rest


def dispatch_prompts(wrapped: Callable[..., Any], generator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Wraps SamplesGenerator._dispatch_prompts_to_vllm: sends a reference to the tokenizer, seeds and past votes."""
    config, labels, progress = config_here(), args[LABELS_POSITION], PROGRESS.setdefault(generator, Progress())
    if config.seeded_rollouts:
        seed = generator.args.train.seed
        labels = [
            replace(label, visit=progress.next_visit(seed)) if isinstance(label, TrainingRow) else label
            for label in labels
        ]
    if build(config.method).reads_history:
        labels = with_past(args[PROMPTS_POSITION], labels, progress)
    args = (*args[:LABELS_POSITION], labels, *args[LABELS_POSITION + 1 :])
    with tokenizer_by_reference(generator):
        return wrapped(*args, **kwargs)


async def initialise(actor: Any, *args: Any, **kwargs: Any) -> None:
    """Replaces RolloutRayActor.__init__, so that log-probabilities are those of the sampled distribution.

    By default vLLM returns them before the temperature is applied, but the policy's are after it (models/actor.py). The
    limits of the engine, which OpenRLHF leaves at vLLM's default of 128 rollouts, come from `engine:`. With
    `weight_digests`, weight syncs are watched.
    """
    config = config_here()
    kwargs = {"logprobs_mode": "processed_logprobs", **config.engine.options(), **kwargs}
    await original_of(actor, "__init__")(actor, *args, **kwargs)
    if config.weight_digests:
        watch_weights(actor.llm)


@dataclass(frozen=True)
class SentTokenizer:
    """Takes the tokenizer's place in a prompt's call: a reference to the stored tokenizer with all of its settings."""

    stored: ray.ObjectRef


# The stored copy of each tokenizer of this process, made when the first prompts are sent.
_SENT: WeakKeyDictionary[object, SentTokenizer] = WeakKeyDictionary()


@contextmanager
def tokenizer_by_reference(generator: Any) -> Iterator[None]:
    """Within the block, the host's SamplesGenerator sends a SentTokenizer instead of its tokenizer.

    OpenRLHF pickles the tokenizer into the call of every prompt (trainer/ppo_utils/samples_generator.py), and the actor
    loads it again each time. For each prompt this costs a tenth of a second in the trainer and half a second in the
    actor. Here Ray stores it once, and each actor's process loads it once.
    """
    whole = generator.tokenizer
    if whole not in _SENT:
        _SENT[whole] = SentTokenizer(ray.put(whole))
    with patch.object(generator, "tokenizer", _SENT[whole]):
        yield


async def tokenizer_here(sent: Any) -> Any:
    """The tokenizer that was sent, one object for all prompts of this process.

    Any other object is returned unchanged.
    """
    return await asyncio.shield(_arriving(sent.stored)) if isinstance(sent, SentTokenizer) else sent


@cache
def _arriving(stored: ray.ObjectRef) -> asyncio.Future[Any]:
    """One future for all rollouts that ask while the tokenizer is still being loaded."""
    arriving: asyncio.Future[Any] = asyncio.ensure_future(stored)
    return arriving


def watch_weights(engine: Any) -> None:
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
