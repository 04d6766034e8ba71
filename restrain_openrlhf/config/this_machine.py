"""A configuration as it runs on this machine (packing, shared GPUs, engines), and what this machine cannot run."""

from dataclasses import dataclass
from os import environ
from pathlib import Path
from shutil import disk_usage
from typing import Self

from restrain_openrlhf.config.checks import refuse_settings
from restrain_openrlhf.config.gpu_layout import GpuLayout, is_one_optimizer_step, prompts_drawn, rollout_batches
from restrain_openrlhf.config.host_flags import Flags, flags_of, host_flags, to_arguments
from restrain_openrlhf.config.memory.estimate import estimate
from restrain_openrlhf.config.memory.lines import GIB
from restrain_openrlhf.config.memory.shape import NoEstimateError, shape_of
from restrain_openrlhf.config.yaml_file import EngineLimits, HookConfig, RunConfig
from restrain_openrlhf.errors import ConfigError, HostError
from restrain_openrlhf.machine.device import Device
from restrain_openrlhf.machine.devices import detect, gpus, visible_gpus
from restrain_openrlhf.machine.flash_attention import BY_TORCH, has_extension, why_not_by_torch
from restrain_openrlhf.machine.host_releases import (
    check_version,
    version_of,
    why_another_torch,
    why_gradients_are_lost,
)
from restrain_openrlhf.method import build

# The name of a checkpoint's folder, before its step.
STEP = "global_step"
# From this ZeRO stage on, DeepSpeed moves the optimizer's states off the GPU while vLLM draws.
LOWEST_STAGE = 2
PACKING = {"ds.packing_samples": True, "train.dynamic_batch_enable": True}
# A configuration that sets any of these flags is not packed.
PACKING_CHOICES = frozenset({*PACKING, "ds.attn_implementation"})
# The tokens of a packed micro-batch. OpenRLHF's default is not meant for any particular GPU.
BUDGETS = frozenset({"train.max_tokens_per_gpu", "rollout.max_tokens_per_gpu"})
# vLLM's default for an engine in another process (config/scheduler.py), which OpenRLHF does not change.
LEAST_ROLLOUTS = 128
# vLLM captures CUDA graphs for batches of up to so many rollouts (config/vllm.py), and each one's logits take memory.
MOST_ROLLOUTS = 512
# vLLM's default for offline sampling (engine/arg_utils.py, get_batch_defaults). 2,048 would slow the prefill down.
BATCHED_TOKENS = 8192


@dataclass(frozen=True)
class HostRun:
    """A run as OpenRLHF is given it on this machine. What a command needs of it is taken from here.

    `config` is adapted to this machine. `stated` has the flags that the run sets, and `flags` the values of all flags,
    with those of the device.
    """

    config: RunConfig
    stated: Flags
    flags: Flags

    @classmethod
    def of(cls, config: RunConfig) -> Self:
        """Raises ConfigError for a flag that OpenRLHF does not have, and for a value of another type."""
        here = on_this_machine(config)
        flags = flags_of(here, detect().host_flags)
        return cls(here.model_copy(update=old_log_probs(here, flags)), host_flags(here), flags)

    @classmethod
    def startable(cls, config: RunConfig) -> Self:
        """A run that can be, here and anywhere, as far as can be told without reading its input files.

        Raises HostError for an OpenRLHF that the hook does not support, and ConfigError for unknown flags and for what
        `refuse_here` refuses.
        """
        check_version()
        run = cls.of(config)
        refuse_here(run.config, run.flags)
        return run

    def words(self) -> list[str]:
        return to_arguments({**detect().host_flags, **self.stated})

    def steps(self, prompts: int) -> int:
        """The run's steps (rollout batches), with `prompts` in an episode; `steps:` may end it earlier."""
        every, most = rollout_batches(prompts, self.flags), self.config.steps
        return every if most is None else min(every, most)


def refuse_here(config: HookConfig, flags: Flags) -> None:
    """The gate of commands that start a run on this machine; `flags` include those of the device.

    Raises ConfigError for what `refuse_settings` refuses, and for what this stack or its GPUs cannot run.
    """
    refuse_settings(config, flags, visible_memory())
    refuse_unsupported(detect(), flags)


def refuse_unsupported(device: Device, flags: Flags) -> None:
    """Raises ConfigError for flags, and a vLLM, that this accelerator or the installed packages do not support."""
    if reason := why_unsupported(device, flags):
        raise ConfigError(reason)


def why_unsupported(device: Device, flags: Flags) -> str | None:
    """Why a run with these flags cannot be started on this machine, with the remedy; None if it can."""
    lost = why_gradients_are_lost(flags["train.dynamic_batch_enable"], flags["ds.zero_stage"])
    if reason := why_another_torch() or lost:
        return reason
    for each in (each for each in device.unsupported if each.asked(flags)):
        what = "set" if flags[each.flag] is True else repr(flags[each.flag])
        return f"{each.flag} is {what}, which this {device.name} stack does not support: {each.reason}. Remove it."
    return None


def refuse_small_disk(flags: Flags, steps: int) -> None:
    """Raises ConfigError for `why_small_disk` of a run of so many steps."""
    if reason := why_small_disk(flags, steps):
        raise ConfigError(reason)


def why_small_disk(flags: Flags, steps: int | None) -> str | None:
    """Why a run cannot save what it has to; None if it can, or if the size of its model is not known here.

    `steps` are those of the whole run, what an earlier start has done included; None: not known.
    """
    path = Path(flags["ckpt.path"]).absolute()
    try:
        one, _, model = (line.bytes for line in estimate(flags, shape_of(str(flags["actor.model_name_or_path"]))).disk)
    except NoEstimateError:
        return None
    saved = _checkpoints_to_come(flags, path, steps, one)
    states = 0 if flags["ckpt.disable_ds"] else saved
    # With save_hf, the newest model and the last good one are there beside that of the end.
    models = 1 + (min(saved, 2) if flags["ckpt.save_hf"] else 0)
    needed = states * one + models * model
    free = disk_usage(next(each for each in (path, *path.parents) if each.exists())).free
    if needed <= free:
        return None
    return (
        f"{path}: {free / GIB:.1f} GiB are free, but the run saves about {needed / GIB:.1f}: {states} checkpoints of "
        f"{one / GIB:.1f} (of ckpt.max_num, and the next one), and models of {model / GIB:.1f}. Free some space, lower "
        f"ckpt.max_num (now {flags['ckpt.max_num']}), or choose a run_dir on a larger disk."
    )


def _checkpoints_to_come(flags: Flags, path: Path, steps: int | None, size: int) -> int:
    """How many more checkpoints of so many bytes a run has at a time than an earlier start has left.

    A checkpoint is deleted once the next one is whole (hook/fixes/checkpoints.py).
    """
    if (every := int(flags["ckpt.save_steps"])) <= 0:
        return 0
    at_once = 1 + int(min(flags["ckpt.max_num"], flags["ckpt.max_mem"] * GIB / size + 1))
    there = [int(each.name.removeprefix(STEP)) for each in path.glob(f"_actor/{STEP}*[0-9]")]
    left = at_once if steps is None else max(steps // every - max(there, default=0) // every, 0)
    return min(left, max(at_once - len(there), 1))


def visible_memory() -> int | None:
    """The bytes of the smallest visible GPU; None on the CPU stack, and where no driver answers.

    Also None if RAY_ADDRESS names a cluster, because a run then uses the cluster's GPUs. No CUDA context is created.
    """
    if "RAY_ADDRESS" in environ or not detect().has_gpus:
        return None
    try:
        return min(gpu.total for gpu in gpus(environ.get("CUDA_VISIBLE_DEVICES", "").strip())) << 20
    except (HostError, ValueError):
        return None


def on_this_machine(config: RunConfig) -> RunConfig:
    """The configuration with the flags that suit this machine.

    Micro-batches are packed if there is a kernel for it and the configuration sets their token budgets, but neither
    packing nor the attention. Models share GPUs if `share_gpus` is set and no Ray cluster brings its own GPUs.
    """
    stated = dict(config.openrlhf)
    if stated.keys() >= BUDGETS and not stated.keys() & PACKING_CHOICES:
        stated |= packing_here()
    config = config.model_copy(update={"openrlhf": stated})
    if not config.share_gpus or environ.get("RAY_ADDRESS"):
        return config
    sharing = flags_to_share(flags_of(config), len(visible_gpus()))
    return config.model_copy(update={"openrlhf": {**stated, **sharing}})


def packing_here() -> Flags:
    """The flags that pack by flash-attn if it is built, else by torch's own kernel for GPUs, if there is one."""
    if has_extension():
        return PACKING
    by_torch = visible_gpus() and version_of("torch") and why_not_by_torch() is None
    return {**PACKING, "ds.attn_implementation": BY_TORCH} if by_torch else {}


def flags_to_share(flags: Flags, gpus: int) -> dict[str, object]:
    """The flags to set (dotted names) where `gpus` are too few for the layout; none if there are no GPUs.

    A stack without GPUs has as many logical GPUs as are asked for. Engines that draw while the policy trains need their
    own GPUs.
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
    """The configuration with all limits of its engines: those that it sets, and others from the run's sizes.

    There are never more rollouts than tokens in a step, because each rollout takes a token. Without GPUs vLLM's
    defaults stay, because its CPU engine plans its memory by them.
    """
    stated, own = config.engine, old_log_probs(config, flags)
    if not device.has_gpus:
        return config.model_copy(update=own)
    seqs = stated.max_num_seqs or min(max(rollouts_in_flight(config, flags), LEAST_ROLLOUTS), MOST_ROLLOUTS)
    tokens = stated.max_num_batched_tokens or max(BATCHED_TOKENS, seqs)
    limits = EngineLimits(max_num_seqs=min(seqs, tokens), max_num_batched_tokens=tokens)
    return config.model_copy(update={"engine": limits, **own})


def old_log_probs(config: HookConfig, flags: Flags) -> dict[str, bool]:
    """Decides once for all processes whether a step's old log-probabilities are its own."""
    return {"own_old_log_probs": config.own_old_log_probs and is_one_optimizer_step(flags)}


def rollouts_in_flight(config: HookConfig, flags: Flags) -> int:
    """The rollouts that one engine gets at once, including those that only vote. The host spreads prompts evenly."""
    plan = build(config.method).rollouts
    voters: int = plan.voters if plan else flags["rollout.n_samples_per_prompt"]
    return -(-prompts_drawn(flags) // GpuLayout.of(flags).engines) * voters
