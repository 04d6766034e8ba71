"""All models on the same GPUs, where a machine has fewer than a small layout asks for."""

import argparse
from os import environ

from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.hook.devices import visible_gpus
from restrain_openrlhf.hook.host_flags import host_flags, parse, to_arguments
from restrain_openrlhf.hook.layout import Flags
from restrain_openrlhf.hook.sizes import gpus_needed

# DeepSpeed moves the optimizer's states off the GPU, while vLLM draws, from this stage on.
LOWEST_STAGE = 2


def on_this_machine(config: RunConfig, parser: argparse.ArgumentParser | None = None) -> RunConfig:
    """The configuration with `flags_to_share` where it has `share_gpus`; a Ray cluster's GPUs are elsewhere.

    `parser` is the installed host's unless given.
    """
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
