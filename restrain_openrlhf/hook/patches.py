"""The one table of host methods that the hook patches: what each must take, and the function of ours for it."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import wrapt

from restrain_openrlhf.errors import HostError
from restrain_openrlhf.hook.host_methods import ORIGINAL, HostMethod

EXPERIENCE_MAKER = "openrlhf.trainer.ppo_utils.experience_maker"
PPO_TRAINER = "openrlhf.trainer.ppo_trainer"
PPO_TRAINER_ASYNC = "openrlhf.trainer.ppo_trainer_async"
PPO_ACTOR = "openrlhf.trainer.ray.ppo_actor"
ACTOR = "openrlhf.models.actor"
LAUNCHER = "openrlhf.trainer.ray.launcher"
SAMPLES = "openrlhf.trainer.ppo_utils.samples_generator"
VLLM_ENGINE = "openrlhf.trainer.ray.vllm_engine"
PROMPTS_DATASET = "openrlhf.datasets.prompts_dataset"
STRATEGY = "openrlhf.utils.deepspeed.deepspeed"
HERE = "restrain_openrlhf.hook"


@dataclass(frozen=True)
class Wrapping(HostMethod):
    """A host method and the function of ours, named as `module:function`, that wraps it, whatever else does too."""

    ours: str

    def is_on(self) -> bool:
        """Whether a call of the method comes to our own function."""
        return self._layer() is not None

    def apply(self) -> None:
        """Wrap it, around whatever wraps it already, unless our own function does."""
        if not self.is_on():
            owner, name = self.locate()
            wrapt.wrap_function_wrapper(owner, name, load(self.ours))

    def remove(self) -> None:
        """Take our own function out and leave every other wrapper where it is. Raises HostError where it cannot."""
        layer = self._layer()
        if layer is not None:
            exchange(self, layer, layer.__wrapped__)

    def _layer(self) -> Any:
        ours = load(self.ours)
        return next((layer for layer in layers(self) if getattr(layer, "_self_wrapper", None) is ours), None)


@dataclass(frozen=True)
class Replacement(HostMethod):
    """A method of a Ray actor class, and the function of ours, named as `module:function`, that takes its place.

    When a class becomes an actor, Ray copies its inherited methods onto it (ray/util/tracing/tracing_helper.py), so
    that wrapping the base class would change nothing; and it pickles the class by value, so that changing it in the
    driver is enough. `ours` calls the base class, or what `original_of` gives.
    """

    ours: str

    def is_on(self) -> bool:
        """Whether a call of the method comes to our own function."""
        ours = load(self.ours)
        return any(layer is ours for layer in layers(self))

    def apply(self) -> None:
        """Take its place, unless that is done already."""
        if not self.is_on():
            owner, name = self.locate()
            # On the class, because it must travel with it to the actor's process.
            setattr(owner, ORIGINAL + name, vars(owner)[name])
            setattr(owner, name, load(self.ours))

    def remove(self) -> None:
        """Give the host its own back, under whatever wraps ours by now. Raises HostError where that cannot be."""
        if self.is_on():
            owner, name = self.locate()
            exchange(self, load(self.ours), vars(owner)[ORIGINAL + name])
            delattr(owner, ORIGINAL + name)


def layers(method: HostMethod) -> list[Any]:
    """What a call of the method runs through, outermost first: every wrapper, and what the last of them wraps."""
    owner, name = method.locate()
    found = [vars(owner)[name]]
    while hasattr(found[-1], "__wrapped__"):
        found.append(found[-1].__wrapped__)
    return found


def exchange(method: HostMethod, layer: Any, other: Any) -> None:
    """Put `other` where `layer` is among the method's layers.

    Raises HostError where what wraps it is not wrapt's, and holds on to what it once was given.
    """
    owner, name = method.locate()
    found = layers(method)
    outer = next((above for above, below in pairwise(found) if below is layer), None)
    if outer is None:
        setattr(owner, name, other)
    elif isinstance(outer, wrapt.FunctionWrapper):
        outer.__wrapped__ = other
    else:
        raise HostError(
            f"{method.module}.{method.qualname} was decorated by {outer!r} after the hook was on, so that the hook "
            "cannot be taken out of it. Decorate it before, or by wrapt."
        )


def original_of(actor: Any, method: str) -> Callable[..., Any]:
    """The host's own function behind a replaced method of this actor; it wants the actor as its first argument."""
    original: Callable[..., Any] = getattr(type(actor), ORIGINAL + method)
    return original


def load(name: str) -> Callable[..., Any]:
    """The function that `module:function` names. Imported late, because these modules import torch."""
    module, function = name.split(":")
    loaded: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return loaded


PATCHES: tuple[Wrapping | Replacement, ...] = (
    Wrapping(
        EXPERIENCE_MAKER,
        "RemoteExperienceMaker.make_experience_batch",
        "(self, rollout_samples)",
        f"{HERE}.experience:make_experience_batch",
    ),
    Wrapping(
        EXPERIENCE_MAKER,
        "RemoteExperienceMaker._dispatch_forward",
        "(self, group, sync_condition, **kwargs)",
        f"{HERE}.lora_reference:dispatch_forward",
    ),
    Wrapping(
        STRATEGY,
        "DeepspeedStrategy.setup_dataloader",
        "(self, replay_buffer, batch_size, pin_memory, shuffle, collate_fn, drop_last, sampler, consumed_samples, "
        "num_workers)",
        f"{HERE}.training_data:setup_dataloader",
    ),
    Wrapping(
        STRATEGY,
        "DeepspeedStrategy.save_ckpt",
        "(self, model, save_dir, tag, max_num, max_mem, client_state, save_latest, metric_value, metric_key)",
        f"{HERE}.checkpoints:save_ckpt",
    ),
    Wrapping(
        STRATEGY,
        "DeepspeedStrategy.save_model",
        "(self, model, tokenizer, output_dir, **kwargs)",
        f"{HERE}.checkpoints:save_model",
    ),
    Wrapping(
        STRATEGY,
        "DeepspeedStrategy.get_ds_train_config",
        "(self, optim_dict, *, max_norm)",
        f"{HERE}.dynamic_batching:get_ds_train_config",
    ),
    Wrapping(
        PROMPTS_DATASET,
        "preprocess_data",
        "(data, input_template, input_key, label_key, apply_chat_template)",
        f"{HERE}.training_data:preprocess_data",
    ),
    Wrapping(
        SAMPLES, "SamplesGenerator.generate_samples", "(self, **generate_kwargs)", f"{HERE}.samples:generate_samples"
    ),
    Wrapping(
        SAMPLES,
        "SamplesGenerator._dispatch_prompts_to_vllm",
        "(self, prompts, labels, *, images, **generate_kwargs)",
        f"{HERE}.samples:dispatch_prompts",
    ),
    Wrapping(
        PPO_ACTOR,
        "ActorPPOTrainer.__init__",
        "(self, strategy, actor, ema_model, actor_optim, actor_scheduler, ema_beta, micro_train_batch_size, "
        "buffer_limit, buffer_cpu_offload, eps_clip, tokenizer, dataloader_pin_memory, vllm_engines, **kwargs)",
        f"{HERE}.actor:initialise",
    ),
    Wrapping(PPO_ACTOR, "ActorPPOTrainer.ppo_train", "(self, kl_ctl)", f"{HERE}.actor:ppo_train"),
    Wrapping(PPO_ACTOR, "ActorPPOTrainer.broadcast_to_vllm", "(self)", f"{HERE}.lora:broadcast_to_vllm"),
    Wrapping(
        ACTOR,
        "Actor.__init__",
        "(self, pretrain_or_model, attn_implementation, param_dtype, load_in_4bit, lora_rank, lora_alpha, "
        "lora_dropout, target_modules, ds_config, device_map, packing_samples, temperature, use_liger_kernel, "
        "freeze_visual_encoder, experts_implementation, **kwargs)",
        f"{HERE}.lora:initialise_actor",
    ),
    Wrapping(
        PPO_ACTOR,
        "ActorPPOTrainer.training_step",
        "(self, experience, kl_ctl, step, loss_batch_info)",
        f"{HERE}.actor:training_step",
    ),
    Wrapping(
        LAUNCHER,
        "RayActorGroup.async_init_model_from_pretrained",
        "(self, *args, **kwargs)",
        f"{HERE}.worker:init_model",
    ),
    Replacement(
        PPO_TRAINER, "PPOTrainer.train_step", "(self, rollout_samples, global_step)", f"{HERE}.trainer:train_step"
    ),
    Replacement(
        PPO_TRAINER_ASYNC,
        "TrainingActor.train_step",
        "(self, rollout_samples, global_step)",
        f"{HERE}.trainer:train_step",
    ),
    Replacement(
        PPO_TRAINER,
        "PPOTrainer.save_logs_and_checkpoints",
        "(self, global_step, logs_dict, client_states)",
        f"{HERE}.trainer:save_logs_and_checkpoints",
    ),
    Replacement(
        PPO_TRAINER_ASYNC,
        "TrainingActor.save_logs_and_checkpoints",
        "(self, global_step, logs_dict, client_states)",
        f"{HERE}.trainer:save_logs_and_checkpoints",
    ),
    Replacement(PPO_TRAINER, "PPOTrainer.fit", "(self, global_step)", f"{HERE}.trainer:fit"),
    Replacement(PPO_TRAINER, "PPOTrainer.get_max_steps", "(self)", f"{HERE}.trainer:get_max_steps"),
    Replacement(PPO_TRAINER, "PPOTrainer.init_checkpoint_states", "(self)", f"{HERE}.trainer:init_checkpoint_states"),
    Replacement(
        PPO_TRAINER_ASYNC,
        "TrainingActor.init_checkpoint_states",
        "(self)",
        f"{HERE}.trainer:init_checkpoint_states",
    ),
    Replacement(
        PPO_TRAINER,
        "PPOTrainer.save_best_checkpoint",
        "(self, eval_metrics, global_step, client_states)",
        f"{HERE}.held_out:save_best_checkpoint",
    ),
    Replacement(
        PPO_TRAINER_ASYNC,
        "TrainingActor.save_best_checkpoint",
        "(self, eval_metrics, global_step, client_states)",
        f"{HERE}.held_out:save_best_checkpoint",
    ),
    Replacement(
        VLLM_ENGINE,
        "RolloutRayActor.__init__",
        "(self, *args, bundle_indices, agent_func_path, remote_rm_url, mm_pad_token_ids, **kwargs)",
        f"{HERE}.samples:initialise",
    ),
)
