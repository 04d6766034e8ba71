"""LoRA: the host trains, checkpoints and sends vLLM the adapter alone; the saved model is whole, and unrounded."""

import copy
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

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.hook.lora_engine import ALL_LINEAR
from restrain_openrlhf.model_files import ADAPTER

BASE = ".base_layer."
# Of a sum of base and adapter: in bf16 most of a young adapter is below half a unit in the last place of the base.
SUM = torch.float32


def whole_weights(model: PeftModel, named: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    """The base model's tensors under the base model's names, with the adapter in them, summed in fp32.

    `named` are tensors of `model.get_base_model()`, in which peft has put its layers: `q_proj.weight` is
    `q_proj.base_layer.weight` there, and the adapter's own tensors stand beside it. What has no adapter keeps its type.
    """
    adapted = _adapted_layers(model)
    for name, tensor in named:
        layer, found, rest = name.partition(BASE)
        if found:
            yield f"{layer}.{rest}", merged_weight(adapted[layer], tensor) if rest == "weight" else tensor
        elif not _is_adapters(name):
            yield name, tensor


def merged_weight(layer: Any, weight: torch.Tensor) -> torch.Tensor:
    """W + s B A in fp32, of W's shape, a tensor of its own: W is never written.

    A and B are raised to fp32 first (peft's `get_delta_weight` would multiply them in their own type).
    """
    merged = weight.detach().to(SUM, copy=True)
    for adapter in layer.active_adapters:
        a, b = layer.lora_A[adapter].weight.detach().to(SUM), layer.lora_B[adapter].weight.detach().to(SUM)
        delta = layer.scaling[adapter] * (b @ a)
        merged += delta.T if layer.fan_in_fan_out else delta
    return merged


def _adapted_layers(model: PeftModel) -> dict[str, Any]:
    return {name: layer for name, layer in model.get_base_model().named_modules() if isinstance(layer, LoraLayer)}


def _is_adapters(name: str) -> bool:
    """As peft tells its own parameters (tuners/lora/model.py, LoraModel.prefix)."""
    return "lora_" in name


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
                f"ds.lora.target_modules has {name.rpartition('.')[2]!r}, and in this model {' and '.join(sharing)} "
                "are one weight: it cannot have the adapter in one place alone. Leave it out; all-linear does."
            )


def _expect_no_base(model: torch.nn.Module, keys: Any) -> None:
    """A checkpoint holds what is trained: of what it lacks, torch is to miss the adapter's tensors alone."""
    frozen = {name for name, parameter in model.named_parameters(remove_duplicate=False) if not parameter.requires_grad}
    keys.missing_keys[:] = [name for name in keys.missing_keys if name not in frozen]


def broadcast_to_vllm(
    wrapped: Callable[..., None], trainer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """The weight sync of ActorPPOTrainer (trainer/ray/ppo_actor.py), over NCCL, TCP or CUDA IPC, with the adapter.

    vLLM's workers put it into their slot (hook/lora_worker.py).
    """
    with naming_adapter(trainer.strategy._unwrap_model(trainer.actor)):
        wrapped(*args, **kwargs)


@contextmanager
def naming_adapter(model: Any) -> Iterator[None]:
    """Within the block, a LoRA model's `named_parameters` are the adapter's, by the names that peft's files have."""
    if not isinstance(model, PeftModel):
        yield
        return
    adapter = [
        (name.replace(f".{model.active_adapter}.", "."), parameter)
        for name, parameter in model.named_parameters()
        if _is_adapters(name)
    ]
    model.named_parameters = lambda: iter(adapter)  # type: ignore[method-assign,assignment,misc]
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
        """The base model's, in the type of the sums: who loads them as the file says keeps all of the adapter."""
        config = copy.deepcopy(self.model.get_base_model().config)
        config.dtype = SUM
        return config

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Whole weights and buffers by the base model's names, in main memory."""
        named = self.model.get_base_model().state_dict().items()
        return {name: tensor.cpu() for name, tensor in whole_weights(self.model, named)}

    def save_pretrained(self, folder: str, state_dict: dict[str, torch.Tensor], **options: Any) -> None:
        """Weights, config.json and generation_config.json, as transformers writes them."""
        base: Any = self.model.get_base_model()
        base.save_pretrained(folder, state_dict=state_dict, **options)
        self.config.to_json_file(Path(folder) / "config.json")


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
