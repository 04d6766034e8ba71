"""What a configuration becomes on this machine, and what is refused here: packing, sharing, engines, GPU memory."""

from os import environ

from restrain_openrlhf.config.blocks import EngineLimits
from restrain_openrlhf.config.checks import refuse_settings
from restrain_openrlhf.config.gpu_layout import GpuLayout, prompts_drawn
from restrain_openrlhf.config.host_flags import Flags, flags_of
from restrain_openrlhf.config.yaml_file import HookConfig, RunConfig
from restrain_openrlhf.errors import ConfigError, HostError
from restrain_openrlhf.machine.device import Device
from restrain_openrlhf.machine.devices import detect, gpus, visible_gpus
from restrain_openrlhf.machine.flash_attention import has_extension
from restrain_openrlhf.machine.host_releases import why_gradients_are_lost
from restrain_openrlhf.method import build

# DeepSpeed moves the optimizer's states off the GPU, while vLLM draws, from this stage on.
LOWEST_STAGE = 2
PACKING = {"ds.packing_samples": True, "train.dynamic_batch_enable": True}
# Where a configuration says any of these itself, it is left as it is.
KEPT = frozenset({*PACKING, "ds.attn_implementation"})
# Tokens of a packed micro-batch: OpenRLHF's own default fits no GPU in particular.
BUDGETS = frozenset({"train.max_tokens_per_gpu", "rollout.max_tokens_per_gpu"})
# vLLM's own for an engine in another process (config/scheduler.py), where OpenRLHF sets none.
LEAST_ROLLOUTS = 128
# vLLM captures CUDA graphs for batches of up to so many (config/vllm.py), and every rollout's logits are in memory.
MOST_ROLLOUTS = 512
# vLLM's for offline sampling (engine/arg_utils.py, get_batch_defaults); 2,048 would draw out the prompts' prefill.
BATCHED_TOKENS = 8192


def refuse_here(config: HookConfig, flags: Flags) -> None:
    """The gate of what starts a run on this machine; `flags` are with the device's own.

    Raises ConfigError for what settings alone can tell, and for what this stack or its GPUs cannot serve.
    """
    refuse_settings(config, flags, visible_memory())
    refuse_unsupported(detect(), flags)


def refuse_unsupported(device: Device, flags: Flags) -> None:
    """Raises ConfigError for what the installed stack's accelerator cannot serve, or its DeepSpeed."""
    if reason := why_gradients_are_lost(flags["train.dynamic_batch_enable"], flags["ds.zero_stage"]):
        raise ConfigError(reason)
    for each in device.unsupported:
        if each.asked(flags):
            what = "set" if flags[each.flag] is True else repr(flags[each.flag])
            raise ConfigError(
                f"{each.flag} is {what}, which this {device.name} stack does not support: {each.reason}. Remove it."
            )


def visible_memory() -> int | None:
    """Bytes of the smallest GPU that this process may use; None on the CPU stack, and where no driver answers.

    None too where RAY_ADDRESS names a cluster: a run is on its GPUs then, which may be others. No CUDA context is made.
    """
    if "RAY_ADDRESS" in environ or not detect().has_gpus:
        return None
    try:
        return min(gpu.total for gpu in gpus(environ.get("CUDA_VISIBLE_DEVICES", "").strip())) << 20
    except (HostError, ValueError):
        return None


def on_this_machine(config: RunConfig) -> RunConfig:
    """The configuration with the flags that this machine adds.

    Micro-batches are packed where flash-attn is built and the configuration has their budgets of tokens, unless it says
    itself whether to pack, or its attention. Models share GPUs where `share_gpus` asks for it; a Ray cluster's GPUs are
    elsewhere.
    """
    stated = dict(config.openrlhf)
    if has_extension() and stated.keys() >= BUDGETS and not stated.keys() & KEPT:
        stated |= PACKING
    config = config.model_copy(update={"openrlhf": stated})
    if not config.share_gpus or environ.get("RAY_ADDRESS"):
        return config
    sharing = flags_to_share(flags_of(config), len(visible_gpus()))
    return config.model_copy(update={"openrlhf": {**stated, **sharing}})


def flags_to_share(flags: Flags, gpus: int) -> dict[str, object]:
    """What to set (dotted names) where `gpus` are too few for the layout; nothing where there are none.

    A stack without GPUs has as many logical ones as are asked for. Engines that draw while the policy trains need GPUs
    of their own.
    """
    if not 0 < gpus < GpuLayout.of(flags).needed or flags["train.async_enable"]:
        return {}
    return {
        "train.colocate_all": True,
        "vllm.enable_sleep": True,
        "ds.enable_sleep": True,
        "ds.zero_stage": max(flags["ds.zero_stage"], LOWEST_STAGE),
    }


def with_limits(config: HookConfig, flags: Flags, device: Device) -> HookConfig:
    """The configuration with its engines' limits: what it says itself, else what follows from the run's sizes.

    Each rollout takes a token of a step, so that there are no more of them than tokens. Without GPUs vLLM's own stay:
    its CPU engine plans its memory by them.
    """
    stated = config.engine
    if not device.has_gpus:
        return config
    seqs = stated.max_num_seqs or min(max(rollouts_in_flight(config, flags), LEAST_ROLLOUTS), MOST_ROLLOUTS)
    tokens = stated.max_num_batched_tokens or max(BATCHED_TOKENS, seqs)
    limits = EngineLimits(max_num_seqs=min(seqs, tokens), max_num_batched_tokens=tokens)
    return config.model_copy(update={"engine": limits})


def rollouts_in_flight(config: HookConfig, flags: Flags) -> int:
    """Rollouts that one engine gets at once, those that only vote included; the host spreads prompts evenly."""
    plan = build(config.method).rollouts
    voters: int = plan.voters if plan else flags["rollout.n_samples_per_prompt"]
    return -(-prompts_drawn(flags) // GpuLayout.of(flags).engines) * voters
