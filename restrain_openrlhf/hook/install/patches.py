"""The one table of host methods that the hook patches: what each must take, and the function of ours for it."""

from restrain_openrlhf.machine.patching import Patch, Replacement, Wrapping

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
ZERO_2 = "deepspeed.runtime.zero.stage_1_and_2"
HERE = "restrain_openrlhf.hook"

PATCHES: tuple[Patch, ...] = (
    Wrapping(
        EXPERIENCE_MAKER,
        "RemoteExperienceMaker.make_experience_batch",
        "(self, rollout_samples)",
        f"{HERE}.policy.experience:make_experience_batch",
    ),
    Wrapping(
        EXPERIENCE_MAKER,
        "RemoteExperienceMaker._dispatch_forward",
        "(self, group, sync_condition, **kwargs)",
        f"{HERE}.fixes.lora_reference:dispatch_forward",
    ),
    Wrapping(
        STRATEGY,
        "DeepspeedStrategy.setup_dataloader",
        "(self, replay_buffer, batch_size, pin_memory, shuffle, collate_fn, drop_last, sampler, consumed_samples, "
        "num_workers)",
        f"{HERE}.rollout.training_data:setup_dataloader",
    ),
    Wrapping(
        STRATEGY,
        "DeepspeedStrategy.save_ckpt",
        "(self, model, save_dir, tag, max_num, max_mem, client_state, save_latest, metric_value, metric_key)",
        f"{HERE}.fixes.checkpoints:save_ckpt",
    ),
    Wrapping(
        STRATEGY,
        "DeepspeedStrategy.save_model",
        "(self, model, tokenizer, output_dir, **kwargs)",
        f"{HERE}.fixes.checkpoints:save_model",
    ),
    Wrapping(
        STRATEGY,
        "DeepspeedStrategy.get_ds_train_config",
        "(self, optim_dict, *, max_norm)",
        f"{HERE}.fixes.gradient_accumulation:get_ds_train_config",
    ),
    Wrapping(
        ZERO_2,
        "DeepSpeedZeroOptimizer.get_all_grad_tensors",
        "(self, tensor_list, dtype)",
        f"{HERE}.fixes.gradient_accumulation:get_all_grad_tensors",
    ),
    Wrapping(
        PROMPTS_DATASET,
        "preprocess_data",
        "(data, input_template, input_key, label_key, apply_chat_template)",
        f"{HERE}.rollout.training_data:preprocess_data",
    ),
    Wrapping(
        SAMPLES,
        "SamplesGenerator.generate_samples",
        "(self, **generate_kwargs)",
        f"{HERE}.rollout.samples:generate_samples",
    ),
    Wrapping(
        SAMPLES,
        "SamplesGenerator._dispatch_prompts_to_vllm",
        "(self, prompts, labels, *, images, **generate_kwargs)",
        f"{HERE}.rollout.samples:dispatch_prompts",
    ),
    Wrapping(PPO_ACTOR, "ActorPPOTrainer.ppo_train", "(self, kl_ctl)", f"{HERE}.policy.actor:ppo_train"),
    Wrapping(PPO_ACTOR, "ActorPPOTrainer.broadcast_to_vllm", "(self)", f"{HERE}.fixes.lora:broadcast_to_vllm"),
    Wrapping(
        ACTOR,
        "Actor.__init__",
        "(self, pretrain_or_model, attn_implementation, param_dtype, load_in_4bit, lora_rank, lora_alpha, "
        "lora_dropout, target_modules, ds_config, device_map, packing_samples, temperature, use_liger_kernel, "
        "freeze_visual_encoder, experts_implementation, **kwargs)",
        f"{HERE}.fixes.lora:initialise_actor",
    ),
    Wrapping(
        ACTOR,
        "log_probs_from_logits",
        "(logits, labels, temperature)",
        f"{HERE}.fixes.log_probs:log_probs_from_logits",
    ),
    Wrapping(
        PPO_ACTOR,
        "ActorPPOTrainer.training_step",
        "(self, experience, kl_ctl, step, loss_batch_info)",
        f"{HERE}.policy.actor:training_step",
    ),
    Wrapping(
        LAUNCHER,
        "RayActorGroup.async_init_model_from_pretrained",
        "(self, *args, **kwargs)",
        f"{HERE}.install.worker:init_model",
    ),
    Replacement(
        PPO_TRAINER, "PPOTrainer.init_checkpoint_states", "(self)", f"{HERE}.logging.trainer:init_checkpoint_states"
    ),
    Replacement(
        PPO_TRAINER_ASYNC,
        "TrainingActor.init_checkpoint_states",
        "(self)",
        f"{HERE}.logging.trainer:init_checkpoint_states",
    ),
    Replacement(
        VLLM_ENGINE,
        "RolloutRayActor.__init__",
        "(self, *args, bundle_indices, agent_func_path, remote_rm_url, mm_pad_token_ids, **kwargs)",
        f"{HERE}.rollout.samples:initialise",
    ),
)
