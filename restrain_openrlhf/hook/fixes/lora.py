"""LoRA: the host trains and checkpoints only the adapter; vLLM and the saved model get whole weights.

The reference policy is the policy's own base model with the adapter off, instead of a second copy. This can go when the
host does so (trainer/ppo_utils/experience_maker.py, RemoteExperienceMaker), sends vLLM an adapter's whole update and
saves a whole model (trainer/ray/ppo_actor.py, ActorPPOTrainer.broadcast_to_vllm; utils/deepspeed/deepspeed.py,
DeepspeedStrategy.save_model).
"""

import copy
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer

from restrain_openrlhf.data.identity import ADAPTER
from restrain_openrlhf.errors import ConfigError

ALL_LINEAR = "all-linear"
BASE = ".base_layer."
# The bits of an fp32 number that bf16 does not have.
LOW_BITS = 0xFFFF


@dataclass(frozen=True)
class MergedWeight:
    """Stands in for an adapted weight where the host reads a parameter: W + s B A, computed whenever it is read.

    W itself is never changed, because adding B A and subtracting it again would not restore its bits.
    """

    name: str
    layer: Any
    weight: torch.Tensor
    requires_grad: bool = True

    @property
    def shape(self) -> torch.Size:
        return self.weight.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.weight.dtype

    @property
    def data(self) -> torch.Tensor:
        """A new tensor with the whole weight in the base model's type, summed in fp32 and rounded by `rounded`."""
        with torch.no_grad():
            merged = self.weight.detach().to(torch.float32, copy=True)
            for adapter in self.layer.active_adapters:
                merged += _delta(self.layer, adapter)
            return rounded(merged, self.weight.dtype, self.name)


def _delta(layer: Any, adapter: str) -> torch.Tensor:
    """s B A in fp32, of the shape of W. For an embedding, peft computes it in the type of its matrices."""
    if adapter not in layer.lora_A:
        whole: torch.Tensor = layer.get_delta_weight(adapter).float()
        return whole
    a, b = layer.lora_A[adapter].weight.float(), layer.lora_B[adapter].weight.float()
    delta: torch.Tensor = layer.scaling[adapter] * (b @ a)
    return delta.T if layer.fan_in_fan_out else delta


def rounded(weight: torch.Tensor, dtype: torch.dtype, name: str) -> torch.Tensor:
    """fp32 values as `dtype`. In bf16 each entry is rounded up or down by its own threshold, the same at every call.

    Rounding to the nearest would lose every change of less than half a unit in the last place, which is most of a young
    adapter's update (docs/decisions/0006-lora-sends-whole-weights.md). The thresholds depend on the entry's place and
    the weight's `name`, and are spread evenly over the unit. So among entries that changed by some share of the unit,
    this share is rounded up, and their sum has the whole update. A value that bf16 can represent stays as it is.
    """
    if dtype != torch.bfloat16:
        return weight.to(dtype)
    bits = weight.contiguous().view(torch.int32) + _thresholds(weight.numel(), name, weight.device).view(weight.shape)
    return (bits & ~LOW_BITS).view(torch.float32).to(dtype)


def _thresholds(count: int, name: str, device: torch.device) -> torch.Tensor:
    """`count` integers from 0 to LOW_BITS, equal on every device: MurmurHash3's finaliser applied to their places."""
    mixed = torch.arange(count, dtype=torch.int32, device=device) + (zlib.crc32(name.encode()) & 0x7FFFFFFF)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        mixed ^= (mixed >> shift) & (2 ** (32 - shift) - 1)
        mixed *= factor - 2**32
    return (mixed >> 16) & LOW_BITS


def whole_weights(
    model: PeftModel, named: Iterable[tuple[str, torch.Tensor]]
) -> Iterator[tuple[str, torch.Tensor | MergedWeight]]:
    """The base model's tensors under the base model's names, with the adapter added to the weights.

    `named` holds tensors of `model.get_base_model()`, into which peft has put its layers: there `q_proj.weight` is
    called `q_proj.base_layer.weight`, and the adapter's tensors are beside it.
    """
    adapted = _adapted_layers(model)
    for name, tensor in named:
        layer, found, rest = name.partition(BASE)
        if found:
            whole = MergedWeight(layer, adapted[layer], tensor) if rest == "weight" else tensor
            yield f"{layer}.{rest}", whole
        elif "lora_" not in name:
            # peft recognises its own parameters by this prefix, too (tuners/lora/model.py, LoraModel.prefix).
            yield name, tensor


def _adapted_layers(model: PeftModel) -> dict[str, Any]:
    return {name: layer for name, layer in model.get_base_model().named_modules() if isinstance(layer, LoraLayer)}


def initialise_actor(wrapped: Callable[..., None], actor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Let the host make its model and adapter (models/actor.py, Actor.__init__), then check that they can be merged.

    "all-linear" arrives from the command line in a list, in which peft does not recognise it.
    """
    if kwargs.get("target_modules") == [ALL_LINEAR]:
        kwargs = {**kwargs, "target_modules": ALL_LINEAR}
    wrapped(*args, **kwargs)
    if isinstance(actor.model, PeftModel):
        refuse_shared_weights(actor.model)
        actor.model.register_load_state_dict_post_hook(_expect_no_base)  # type: ignore[no-untyped-call]


def refuse_shared_weights(model: PeftModel) -> None:
    """Raises ConfigError for an adapter on one of two layers that share a weight: a merged model has only one."""
    every = list(model.get_base_model().named_parameters(remove_duplicate=False))
    for name, layer in _adapted_layers(model).items():
        weight = layer.get_base_layer().weight
        sharing = [other.replace(BASE, ".") for other, parameter in every if parameter is weight]
        if len(sharing) > 1:
            raise ConfigError(
                f"ds.lora.target_modules has {name.rpartition('.')[2]!r}, but in this model {' and '.join(sharing)} "
                "are one shared weight, which cannot have an adapter in only one of its places. Leave it out; "
                "all-linear does."
            )


def _expect_no_base(model: torch.nn.Module, keys: Any) -> None:
    """Keep torch from missing the base model's tensors in a checkpoint, which only holds what is trained."""
    frozen = {name for name, parameter in model.named_parameters(remove_duplicate=False) if not parameter.requires_grad}
    keys.missing_keys[:] = [name for name in keys.missing_keys if name not in frozen]


def broadcast_to_vllm(
    wrapped: Callable[..., None], trainer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Wraps the weight sync of ActorPPOTrainer (trainer/ray/ppo_actor.py), so that it sends whole weights."""
    with naming_whole_weights(trainer.strategy._unwrap_model(trainer.actor)):
        wrapped(*args, **kwargs)


@contextmanager
def naming_whole_weights(model: Any) -> Iterator[None]:
    """Within the block, `named_parameters` of a LoRA model gives the base model's names with merged weights."""
    if not isinstance(model, PeftModel):
        yield
        return
    base = model.get_base_model().named_parameters
    with patch.object(model, "named_parameters", lambda: whole_weights(model, base())):
        yield


def save_model(wrapped: Callable[..., None], strategy: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Save the whole model, and the adapter in its folder `adapter/`.

    The host (DeepspeedStrategy) saves only the adapter.
    """
    model, tokenizer, folder = args
    trained = strategy._unwrap_model(model)
    if isinstance(trained, PeftModel):
        wrapped(SimpleNamespace(module=WholeModel(trained)), tokenizer, folder, **kwargs)
        folder = Path(folder) / ADAPTER
    wrapped(model, tokenizer, str(folder), **kwargs)


@dataclass(frozen=True)
class WholeModel:
    """A LoRA model with the interface of a model without adapter, as far as the host's saving uses it."""

    model: PeftModel

    @property
    def config(self) -> Any:
        return self.model.get_base_model().config

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Whole weights and buffers under the base model's names, in main memory."""
        named = self.model.get_base_model().state_dict().items()
        return {name: tensor.data.cpu() for name, tensor in whole_weights(self.model, named)}

    def save_pretrained(self, folder: str, state_dict: dict[str, torch.Tensor], **options: Any) -> None:
        """Write weights, config.json and generation_config.json as transformers does."""
        base: Any = self.model.get_base_model()
        base.save_pretrained(folder, state_dict=state_dict, **options)


@contextmanager
def without_base(strategy: Any, engine: Any) -> Iterator[None]:
    """Within the block, checkpoints of a LoRA model leave out the base model, which is loaded from its own files."""
    model = strategy._unwrap_model(engine)
    if not isinstance(model, PeftModel):
        yield
        return
    trained_alone = partial(engine.save_checkpoint, exclude_frozen_parameters=True)
    second_names = model.register_state_dict_post_hook(_drop_second_names)  # type: ignore[no-untyped-call]
    try:
        with patch.object(engine, "save_checkpoint", trained_alone):
            yield
    finally:
        second_names.remove()


def _drop_second_names(model: torch.nn.Module, state: dict[str, torch.Tensor], *_: object) -> None:
    """Remove frozen weights under their second names.

    DeepSpeed leaves a frozen weight out under one name only, but an output head that is tied to an embedding has two.
    """
    names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    for name in names - {name for name, _ in model.named_parameters()}:
        state.pop(name, None)


def make_policy_the_reference(maker: Any) -> None:
    """In a LoRA run, send what a RemoteExperienceMaker asks the reference policy to the policy instead."""
    if maker.initial_model_group is not None and maker.args.ds.lora.rank > 0:
        reference = maker.initial_model_group = copy.copy(maker.actor_model_group)
        reference._actor_handlers = [_asking_without_adapter(actor) for actor in reference._actor_handlers]


def _asking_without_adapter(actor: Any) -> Any:
    """The handle of a policy process, as far as the host uses that of a reference policy (trainer/ray/launcher.py)."""
    batch = SimpleNamespace(remote=partial(actor.__ray_call__.remote, run_without_adapter))
    return SimpleNamespace(execute_batch=batch, empty_cache=actor.empty_cache)


def run_without_adapter(actor: Any, method: str, data: Any, start: int, end: int) -> Any:
    """Runs in a policy process: BaseModelActor.execute_batch with the adapter off."""
    with actor.strategy._unwrap_model(actor.actor).disable_adapter():
        return actor.execute_batch(method, data, start, end)
