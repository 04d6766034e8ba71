"""Sets up OpenRLHF's trainer under DeepSpeed with the hook on, in the process of a measurement."""

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from restrain_openrlhf.config.host_flags import parse
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.hook.install.environment import to_environment
from restrain_openrlhf.hook.install.instrument import install
from restrain_openrlhf.machine import flash_attention
from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.method import parse_settings

# OpenRLHF's default for Adam's first moment.
BETA_1 = 0.9
# The ZeRO stage that partitions parameters.
PARTITIONED = 3


def prepare_process() -> None:
    """Make this process a distributed run of one process. Must be called before the host is imported."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    os.environ |= to_environment(HookConfig(method=parse_settings({"name": "ttrl"})))
    detect().install()
    install()


def arguments_of(words: Sequence[str]) -> Any:
    """The host's arguments for these words, completed as the host's command does it (cli/train_ppo_ray.py)."""
    from openrlhf.utils.config import hierarchize  # noqa: PLC0415 - after the device is prepared

    args = hierarchize(parse(words))
    if args.actor.eps_clip_low_high is None:
        args.actor.eps_clip_low_high = (args.actor.eps_clip, args.actor.eps_clip)
    # The host always packs dynamic batches.
    args.ds.packing_samples |= args.train.dynamic_batch_enable
    args.ds.attn_implementation = attention_of(args.ds.attn_implementation, args.ds.packing_samples)
    return args


def attention_of(asked: str, packed: bool) -> str:
    """The attention that the host uses: packing requires one of flash-attn's names."""
    return "flash_attention_2" if packed and "flash_attention" not in asked else asked


def strategy_of(args: Any) -> Any:
    from openrlhf.utils import get_strategy  # noqa: PLC0415

    strategy = get_strategy(args)
    strategy.setup_distributed()
    return strategy


def small_model(args: Any, vocabulary: int, lora: bool) -> Any:
    """A small Qwen3 with random weights; with `lora`, it has an adapter on every linear layer, which is not new.

    Several query heads share keys and values, as in the models of all presets.
    """
    import torch  # noqa: PLC0415
    from transformers import AutoModelForCausalLM, Qwen3Config  # noqa: PLC0415

    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        tie_word_embeddings=False,
    )
    models: Any = AutoModelForCausalLM
    attention = flash_attention.name_in_transformers(args.ds.attn_implementation)
    model = models.from_config(config, attn_implementation=attention)
    model = model.to(torch.bfloat16 if args.ds.param_dtype == "bf16" else torch.float32)
    return _with_adapter(model) if lora else model


def _with_adapter(model: Any) -> Any:
    import torch  # noqa: PLC0415
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415

    policy = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, target_modules="all-linear"))
    with torch.no_grad():
        for parameter in trained(policy):
            # With larger values, the rounding of two kernels in bf16 would differ by as much as the limit of the
            # gradient's check.
            parameter.normal_(std=0.03)
    # DeepSpeed needs one type, but peft makes adapters in fp32.
    return policy.to(model.dtype)


def trained(model: Any) -> list[Any]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def policy_of(model: Any, args: Any) -> Any:
    """The host's policy with this model, outside of DeepSpeed."""
    from openrlhf.models import Actor  # noqa: PLC0415

    policy = Actor(model)
    policy.packing_samples, policy.temperature = args.ds.packing_samples, args.rollout.temperature
    return policy


def trainer_of(strategy: Any, policy: Any, args: Any) -> Any:
    """The host's trainer, made as in trainer/ray/ppo_actor.py; `trainer.actor` is DeepSpeed's engine."""
    from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer  # noqa: PLC0415

    actor = args.actor
    if actor.gradient_checkpointing_enable:
        reentrant = actor.gradient_checkpointing_reentrant
        policy.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    optimizer = {"optim": actor.optim, "muon": vars(actor.muon), "adam": vars(actor.adam), "max_norm": actor.max_norm}
    schedule = {"lr_scheduler": "constant", "scheduler_steps": 10}
    engine, adam, scheduler = strategy.prepare((policy, {**optimizer, **schedule}))
    micro_batch = args.train.micro_batch_size
    return ActorPPOTrainer(strategy, engine, None, adam, scheduler, micro_train_batch_size=micro_batch)


def experience_of(
    sequences: Any, attention: Any, mask: Any, old: Any, base: Any, info: Mapping[str, Sequence[Any]]
) -> Any:
    """Rollouts in the form of the replay buffer: tokens (B, T), log-probabilities (B, T-1), the method's columns."""
    from openrlhf.trainer.ppo_utils.experience import Experience  # noqa: PLC0415

    return Experience(
        sequences=sequences,
        attention_mask=attention,
        action_mask=mask,
        action_log_probs=old,
        base_action_log_probs=base,
        advantages=None,
        total_length=attention.sum(1),
        info=dict(info),
    )


def used_gradient(engine: Any) -> Any:
    """The gradient of the first step, computed from Adam's first moment, which was 0 before."""
    import torch  # noqa: PLC0415

    moments = [_first_moment(engine, each).flatten().double().cpu() for each in trained(engine.module)]
    return torch.cat(moments) / (1 - BETA_1)


def _first_moment(engine: Any, parameter: Any) -> Any:
    """Adam's exp_avg of a whole parameter, also where it is part of ZeRO's flat groups.

    `safe_get_full_optimizer_state` fails for flat groups, because DeepSpeed links their states after the step of the
    first group, when the others have none yet (runtime/zero/stage_1_and_2.py, _optimizer_step). ZeRO 3 has no such
    groups, nor has the optimizer that adds up in fp32 under ZeRO 1.
    """
    from deepspeed.runtime.bf16_optimizer import BF16_Optimizer  # noqa: PLC0415

    if engine.zero_optimization_stage() == PARTITIONED or isinstance(engine.optimizer, BF16_Optimizer):
        from deepspeed.utils import safe_get_full_optimizer_state  # noqa: PLC0415

        return safe_get_full_optimizer_state(parameter, "exp_avg")
    optimizer, place = engine.optimizer, getattr(parameter, "_hp_mapping", None)
    if place is None:
        return optimizer.state[parameter]["exp_avg"]
    group = optimizer.single_partition_of_fp32_groups[place.param_group_index]
    address = place.get_hp_fragment_address()
    return optimizer.optimizer.state[group]["exp_avg"].narrow(0, address.start, address.numel)
