"""Everything of the host that the hook relies on, checked against what is installed: its patches, and the rest."""

import importlib

from restrain_openrlhf.config.host_flags import check_version
from restrain_openrlhf.hook.install.patches import EXPERIENCE_MAKER as MAKER
from restrain_openrlhf.hook.install.patches import (
    LAUNCHER,
    PATCHES,
    PPO_ACTOR,
    PPO_TRAINER,
    PROMPTS_DATASET,
    SAMPLES,
    STRATEGY,
    VLLM_ENGINE,
)
from restrain_openrlhf.hook.install.shared_group import SharedGroup
from restrain_openrlhf.machine.host_methods import HostAttributes, HostMethod

# What the hook calls, has called by the host, or puts something else in the place of for a moment.
CALLED = (
    HostMethod(PPO_TRAINER, "BasePPOTrainer.init_checkpoint_states", "(self)"),
    HostMethod(PPO_TRAINER, "PPOTrainer.evaluate", "(self, global_step, **generate_kwargs)"),
    HostMethod("openrlhf.utils.logging_utils", "WandbLogger.log_train", "(self, global_step, logs_dict)"),
    HostMethod("openrlhf.utils.logging_utils", "WandbLogger.log_eval", "(self, global_step, logs_dict)"),
    HostMethod("openrlhf.utils.logging_utils", "WandbLogger.close", "(self)"),
    HostMethod(
        PPO_ACTOR, "PolicyModelActor.init_model_from_pretrained", "(self, strategy, pretrain, max_steps, vllm_engines)"
    ),
    HostMethod(VLLM_ENGINE, "RolloutRayActor.generate", "(self, prompt_token_ids, sampling_params, multi_modal_data)"),
    HostMethod(
        VLLM_ENGINE,
        "RolloutRayActor.generate_responses",
        "(self, prompt, label, sampling_params, max_length, hf_tokenizer, num_samples, images)",
    ),
    HostMethod(
        "openrlhf.utils.agent",
        "SingleTurnAgentExecutor.execute",
        "(self, prompt, label, sampling_params, max_length, hf_tokenizer, llm_engine, images)",
    ),
    HostMethod("openrlhf.utils.agent", "SingleTurnAgentExecutor.__init__", "(self, remote_rm_url)"),
    HostMethod(LAUNCHER, "BaseModelActor.execute_batch", "(self, method_name, all_data, start_idx, end_idx)"),
    HostMethod(STRATEGY, "DeepspeedStrategy._unwrap_model", "(self, model)"),
    HostMethod(STRATEGY, "DeepspeedStrategy.is_rank_0", "(self)"),
    HostMethod(STRATEGY, "DeepspeedStrategy._get_ckpt_metric_path", "(self, ckpt_dir)"),
    HostMethod(STRATEGY, "DeepspeedStrategy._read_ckpt_metric", "(self, ckpt_dir)"),
    HostMethod(STRATEGY, "DeepspeedStrategy._write_ckpt_metric", "(self, ckpt_dir, metric_value, metric_key)"),
    HostMethod(
        "deepspeed.runtime.engine",
        "DeepSpeedEngine.save_checkpoint",
        "(self, save_dir, tag, client_state, save_latest, exclude_frozen_parameters)",
    ),
    HostMethod("peft.tuners.lora", "Linear.get_delta_weight", "(self, adapter)"),
    HostMethod(
        "openrlhf.models.loss",
        "PolicyLoss.forward",
        "(self, log_probs, old_log_probs, advantages, action_mask, rollout_log_probs, dp_size, batch_num_tokens, "
        "global_batch_size)",
    ),
    HostMethod(
        PPO_ACTOR,
        "compute_approx_kl",
        "(log_probs, log_probs_base, log_probs_old, kl_estimator, unbiased_gradient)",
    ),
)
LOGGING = ("args", "experience_maker", "tensorboard_logger", "wandb_logger")
READ = (
    HostAttributes(PPO_TRAINER, "PPOTrainer", (*LOGGING, "eval_dataloader", "generate_kwargs", "samples_generator")),
    HostAttributes("openrlhf.trainer.ppo_trainer_async", "TrainingActor", LOGGING),
    HostAttributes(MAKER, "RemoteExperienceMaker", ("actor_model_group", "args", "initial_model_group", "tokenizer")),
    HostAttributes(SAMPLES, "SamplesGenerator", ("args",)),
    HostAttributes(PPO_ACTOR, "ActorPPOTrainer", ("actor", "actor_loss_fn", "args", "strategy")),
    HostAttributes("openrlhf.models.loss", "PolicyLoss", ("token_level_loss",)),
    HostAttributes(LAUNCHER, "RayActorGroup", ("_actor_handlers", "ray_actor_type")),
    HostAttributes(LAUNCHER, "ReferenceModelActor", ("__ray_call__",)),
    HostAttributes(PPO_ACTOR, "PolicyModelActor", ("__ray_call__", "actor")),
    SharedGroup(VLLM_ENGINE, "RolloutRayActor"),
    HostAttributes(VLLM_ENGINE, "RolloutRayActor", ("kwargs",)),
    HostAttributes(PROMPTS_DATASET, "PromptDataset", ("prompts", "labels", "images", "datasources")),
    HostAttributes(
        STRATEGY,
        "DeepspeedStrategy",
        ("all_reduce", "args", "ds_device_mesh", "seed", "stage", "use_dynamic_batch"),
    ),
    HostAttributes(
        "openrlhf.trainer.ppo_utils.experience",
        "Experience",
        (
            "sequences",
            "action_mask",
            "action_log_probs",
            "base_action_log_probs",
            "rollout_log_probs",
            "advantages",
            "rewards",
            "truncated",
            "prompts",
            "labels",
            "info",
        ),
    ),
    HostAttributes("deepspeed.runtime.engine", "DeepSpeedEngine", ("global_steps",)),
    HostAttributes("ray.actor", "_ActorClassMetadata", ("class_name", "modified_class")),
    HostAttributes("vllm.engine.arg_utils", "EngineArgs", ("logprobs_mode", "max_num_batched_tokens", "max_num_seqs")),
    HostAttributes(
        "vllm.sampling_params", "SamplingParams", ("detokenize", "logprobs", "max_tokens", "min_tokens", "seed")
    ),
    HostAttributes("vllm.outputs", "RequestOutput", ("outputs",)),
    HostAttributes("vllm.outputs", "CompletionOutput", ("finish_reason", "logprobs", "token_ids")),
    HostAttributes("vllm.logprobs", "Logprob", ("logprob", "rank")),
)
CONTRACT: tuple[HostMethod | HostAttributes | SharedGroup, ...] = (*PATCHES, *CALLED, *READ)
HOST_MODULES = frozenset(relied_on.module for relied_on in CONTRACT)


def check_all() -> None:
    """Import every host module relied on and check it. Takes seconds; used by `restrain doctor` and by the tests."""
    check_version()
    for module in sorted(HOST_MODULES):
        importlib.import_module(module)
        check_module(module)


def check_module(module: str) -> None:
    """Check what is relied on in one host module, as it is imported. Raises HostError naming what differs."""
    for relied_on in CONTRACT:
        if relied_on.module == module:
            relied_on.check()
