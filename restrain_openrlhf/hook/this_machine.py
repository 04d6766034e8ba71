"""What a configuration becomes on this machine: packed where flash-attn is, on shared GPUs where they are few."""

import argparse
from os import environ

from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.hook.devices import visible_gpus
from restrain_openrlhf.hook.flash_attention import has_extension
from restrain_openrlhf.hook.host_flags import host_flags, parse, to_arguments
from restrain_openrlhf.hook.layout import Flags
from restrain_openrlhf.hook.sizes import gpus_needed

# DeepSpeed moves the optimizer's states off the GPU, while vLLM draws, from this stage on.
LOWEST_STAGE = 2
PACKING = {"ds.packing_samples": True, "train.dynamic_batch_enable": True}
# Where a configuration says any of these itself, it is left as it is.
KEPT = frozenset({*PACKING, "ds.attn_implementation"})
# Tokens of a packed micro-batch: OpenRLHF's own default fits no GPU in particular.
BUDGETS = frozenset({"train.max_tokens_per_gpu", "rollout.max_tokens_per_gpu"})


def on_this_machine(config: RunConfig, parser: argparse.ArgumentParser | None = None) -> RunConfig:
    """The configuration with the flags that this machine adds; `parser` is the installed host's unless given."""
    return _sharing(packed(config), parser)


def packed(config: RunConfig) -> RunConfig:
    """With packed micro-batches where flash-attn is built and the configuration has their budgets of tokens.

    What it says itself stays: either flag of packing, or its attention.
    """
    stated = config.openrlhf
    if not has_extension() or not stated.keys() >= BUDGETS or stated.keys() & KEPT:
        return config
    return config.model_copy(update={"openrlhf": {**stated, **PACKING}})


def _sharing(config: RunConfig, parser: argparse.ArgumentParser | None) -> RunConfig:
    """With `flags_to_share` where it has `share_gpus`; a Ray cluster's GPUs are elsewhere."""
    if not config.share_gpus or environ.get("RAY_ADDRESS"):
        return config
    flags = vars(parse(to_arguments(host_flags(config), parser), parser))
    sharing = flags_to_share(flags, len(visible_gpus()))
    return config.model_copy(update={"openrlhf": {**config.openrlhf, **sharing}})


def flags_to_share(flags: Flags, gpus: int) -> dict[str, object]:
    """What to set (dotted names) where `gpus` are too few for the layout; nothing where there are none.

    A stack without GPUs has as many logical ones as are asked for. Engines that draw while the policy trains need GPUs
    of their own.
    """
    if not 0 < gpus < gpus_needed(dict(flags)) or flags["train.async_enable"]:
        return {}
    return {
        "train.colocate_all": True,
        "vllm.enable_sleep": True,
        "ds.enable_sleep": True,
        "ds.zero_stage": max(flags["ds.zero_stage"], LOWEST_STAGE),
    }
