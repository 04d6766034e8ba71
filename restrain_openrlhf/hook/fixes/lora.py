"""LoRA: the host trains, checkpoints and keeps the adapter alone; vLLM and the saved model get it in whole weights.

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

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer

from restrain_openrlhf.data.model_files import ADAPTER
from restrain_openrlhf.errors import ConfigError

ALL_LINEAR = "all-linear"
BASE = ".base_layer."
# The bits of an fp32 number that bf16 does not have.
DROPPED = 0xFFFF


@dataclass(frozen=True)
class MergedWeight:
    """Stands for an adapted weight where the host reads a parameter: W + s B A, computed anew whenever it is read.

    W is never written. To add and to subtract B A again would not give its bits back, in bf16 least of all.
    """

    name: str
    layer: Any
    weight: torch.Tensor
    requires_grad: bool = True

    @property
    def shape(self) -> torch.Size:
        """As the base model's."""
        return self.weight.shape

    @property
    def dtype(self) -> torch.dtype:
        """As the base model's."""
        return self.weight.dtype

    @property
    def data(self) -> torch.Tensor:
        """The whole weight in the base's type, a tensor of its own, summed in fp32 and rounded by `rounded`."""
        with torch.no_grad():
            merged = self.weight.detach().to(torch.float32, copy=True)
            for adapter in self.layer.active_adapters:
                merged += _delta(self.layer, adapter)
            return rounded(merged, self.weight.dtype, self.name)


def _delta(layer: Any, adapter: str) -> torch.Tensor:
    """s B A in fp32, of W's shape; an embedding's by peft, in the type of its matrices."""
    if adapter not in layer.lora_A:
        whole: torch.Tensor = layer.get_delta_weight(adapter).float()
        return whole
    a, b = layer.lora_A[adapter].weight.float(), layer.lora_B[adapter].weight.float()
    delta: torch.Tensor = layer.scaling[adapter] * (b @ a)
    return delta.T if layer.fan_in_fan_out else delta


def rounded(weight: torch.Tensor, dtype: torch.dtype, name: str) -> torch.Tensor:
    """fp32 values in `dtype`; in bf16 each goes up or down by a threshold of its own, the same at every call.

    To the nearest, an entry that moved by less than half a unit in the last place would not move at all, and that is
    most of a young adapter's update (docs/decisions/0006-lora-sends-whole-weights.md). With thresholds spread evenly
    over the unit, by the entry's place and the weight's `name`, the share of the entries that go up is the share of the
    unit that they moved: their sum, and what a layer computes, has the whole update. What bf16 can hold stays.
    """
    if dtype != torch.bfloat16:
        return weight.to(dtype)
    bits = weight.contiguous().view(torch.int32) + _thresholds(weight.numel(), name, weight.device).view(weight.shape)
    return (bits & ~DROPPED).view(torch.float32).to(dtype)


def _thresholds(count: int, name: str, device: torch.device) -> torch.Tensor:
    """`count` integers from 0 to DROPPED, alike on every device: the finaliser of MurmurHash3 over their places."""
    mixed = torch.arange(count, dtype=torch.int32, device=device) + (zlib.crc32(name.encode()) & 0x7FFFFFFF)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        mixed ^= (mixed >> shift) & (2 ** (32 - shift) - 1)
        mixed *= factor - 2**32
    return (mixed >> 16) & DROPPED


def whole_weights(
    model: PeftModel, named: Iterable[tuple[str, torch.Tensor]]
) -> Iterator[tuple[str, torch.Tensor | MergedWeight]]:
    """The base model's tensors under the base model's names, with the adapter in them.

    `named` are tensors of `model.get_base_model()`, in which peft has put its layers: `q_proj.weight` is
    `q_proj.base_layer.weight` there, and the adapter's own tensors stand beside it.
    """
    adapted = _adapted_layers(model)
    for name, tensor in named:
        layer, found, rest = name.partition(BASE)
        if found:
            whole = MergedWeight(layer, adapted[layer], tensor) if rest == "weight" else tensor
            yield f"{layer}.{rest}", whole
        elif "lora_" not in name:
            # As peft tells its own parameters (tuners/lora/model.py, LoraModel.prefix).
            yield name, tensor


def _adapted_layers(model: PeftModel) -> dict[str, Any]:
    return {name: layer for name, layer in model.get_base_model().named_modules() if isinstance(layer, LoraLayer)}


def initialise_actor(wrapped: Callable[..., None], actor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """After the host made its model and adapter (models/actor.py, Actor.__init__): see that the adapter can be merged.

    A word of the command line reaches peft in a list, where it does not know "all-linear".
    """
    if kwargs.get("target_modules") == [ALL_LINEAR]:
        kwargs = {**kwargs, "target_modules": ALL_LINEAR}
    wrapped(*args, **kwargs)
    if isinstance(actor.model, PeftModel):
        refuse_shared_weights(actor.model)
        actor.model.register_load_state_dict_post_hook(_expect_no_base)  # type: ignore[no-untyped-call]


def refuse_shared_weights(model: PeftModel) -> None:
    """Raises ConfigError for an adapter on one of two layers that share a weight: a whole model has one for both."""
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
    """A checkpoint holds what is trained: of what it lacks, torch is to miss the adapter's tensors alone."""
    frozen = {name for name, parameter in model.named_parameters(remove_duplicate=False) if not parameter.requires_grad}
    keys.missing_keys[:] = [name for name in keys.missing_keys if name not in frozen]


def broadcast_to_vllm(
    wrapped: Callable[..., None], trainer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """The weight sync of ActorPPOTrainer (trainer/ray/ppo_actor.py), over NCCL, TCP or CUDA IPC, with whole weights."""
    with naming_whole_weights(trainer.strategy._unwrap_model(trainer.actor)):
        wrapped(*args, **kwargs)


@contextmanager
def naming_whole_weights(model: Any) -> Iterator[None]:
    """Within the block, a LoRA model's `named_parameters` are the base model's, one merged after the other."""
    if not isinstance(model, PeftModel):
        yield
        return
    model.named_parameters = lambda: whole_weights(model, model.get_base_model().named_parameters())  # type: ignore[method-assign,assignment,misc]
    try:
        yield
    finally:
        del model.named_parameters


def save_model(wrapped: Callable[..., None], strategy: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """DeepspeedStrategy.save_model writes an adapter alone: it goes to `adapter/`, in the folder of the whole model."""
    model, tokenizer, folder = args
    trained = strategy._unwrap_model(model)
    if isinstance(trained, PeftModel):
        wrapped(SimpleNamespace(module=WholeModel(trained)), tokenizer, folder, **kwargs)
        folder = Path(folder) / ADAPTER
    wrapped(model, tokenizer, str(folder), **kwargs)


@dataclass(frozen=True)
class WholeModel:
    """A LoRA model as the host saves one that has no adapter."""

    model: PeftModel

    @property
    def config(self) -> Any:
        """The base model's."""
        return self.model.get_base_model().config

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Whole weights and buffers by the base model's names, in main memory."""
        named = self.model.get_base_model().state_dict().items()
        return {name: tensor.data.cpu() for name, tensor in whole_weights(self.model, named)}

    def save_pretrained(self, folder: str, state_dict: dict[str, torch.Tensor], **options: Any) -> None:
        """Weights, config.json and generation_config.json, as transformers writes them."""
        base: Any = self.model.get_base_model()
        base.save_pretrained(folder, state_dict=state_dict, **options)


@contextmanager
def without_base(strategy: Any, engine: Any) -> Iterator[None]:
    """Within the block, a DeepSpeed engine's checkpoints leave a LoRA model's base out: it is loaded from its files."""
    model = strategy._unwrap_model(engine)
    if not isinstance(model, PeftModel):
        yield
        return
    engine.save_checkpoint = partial(engine.save_checkpoint, exclude_frozen_parameters=True)
    second_names = model.register_state_dict_post_hook(_drop_second_names)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        del engine.save_checkpoint
        second_names.remove()


def _drop_second_names(model: torch.nn.Module, state: dict[str, torch.Tensor], *_: object) -> None:
    """DeepSpeed leaves frozen weights out by one name each, and the head that is tied to an embedding has another."""
    names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    for name in names - {name for name, _ in model.named_parameters()}:
        state.pop(name, None)


def make_policy_the_reference(maker: Any) -> None:
    """In a LoRA run, what a RemoteExperienceMaker asks the reference policy goes to the policy from here on."""
    if maker.initial_model_group is not None and maker.args.ds.lora.rank > 0:
        maker.initial_model_group = without_adapter(maker.actor_model_group)


def without_adapter(group: Any) -> Any:
    """The policy's group as the host sends it batches (trainer/ray/launcher.py), which run with the adapter off."""
    plain = copy.copy(group)
    plain._actor_handlers = [_WithoutAdapter(actor) for actor in group._actor_handlers]
    return plain


@dataclass(frozen=True)
class _WithoutAdapter:
    """A policy process's handle."""

    actor: Any

    @property
    def execute_batch(self) -> Any:
        return SimpleNamespace(remote=partial(self.actor.__ray_call__.remote, run_without_adapter))

    @property
    def empty_cache(self) -> Any:
        return self.actor.empty_cache


def run_without_adapter(actor: Any, method: str, data: Any, start: int, end: int) -> Any:
    """Inside a policy process: BaseModelActor.execute_batch with the base model alone."""
    with actor.strategy._unwrap_model(actor.actor).disable_adapter():
        return actor.execute_batch(method, data, start, end)
