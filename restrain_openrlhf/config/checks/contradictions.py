"""Refuses flags of OpenRLHF that would silently change RESTRAIN's maths, or stop a run halfway."""

import re
from collections.abc import Callable
from importlib.util import find_spec

from restrain_openrlhf.config.gpu_layout import GpuLayout
from restrain_openrlhf.config.host_flags import BOUNDS, Flags, is_agent
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.machine.host_releases import installed
from restrain_openrlhf.method import Method

Check = Callable[[Flags, HookConfig, Method], str | None]
# The ZeRO stage that partitions the weights themselves.
PARTITIONED_WEIGHTS = 3
THRESHOLD = "algo.advantage.is_correction_threshold"


def refused_if(holds: Callable[[Flags, HookConfig, Method], bool], message: str) -> Check:
    """A check with a message, in which `{flag}`, `{flag!r}`, `{steps}` and `{method}` are replaced by their values."""

    def check(flags: Flags, config: HookConfig, method: Method) -> str | None:
        known = {**flags, "steps": config.steps, "method": method.name}
        filled = re.sub(r"\{([\w.]+)(!r)?\}", lambda found: (repr if found[2] else str)(known[found[1]]), message)
        return filled if holds(flags, config, method) else None

    # The documentation's page of refused flags is made from the docstrings of checks.
    check.__doc__ = message
    return check


def refused_by_release(flags: Flags, _config: HookConfig, _method: Method) -> str | None:
    """A flag that machine/host_releases.yaml refuses for the installed release."""
    given = ((name, reason) for name, reason in installed().refused.items() if flags[name] is not None)
    return next((f"{name} is {flags[name]!r}: {reason}. Leave it out." for name, reason in given), None)


def _sums_in_fp32_for_the_host(flags: Flags) -> bool:
    return flags["ds.grad_accum_dtype"] == "fp32" and bool(flags["ds.adam_offload"])


# A check for each number: they come before checks that compute with these numbers.
OUT_OF_BOUNDS: tuple[Check, ...] = tuple(
    refused_if(
        lambda flags, *_, bound=bound, name=name: not bound.allows(name, flags),
        f"{name} is {{{name}}}. Set it to {bound.range}: {bound.why}.",
    )
    for bound in BOUNDS
    for name in bound.flags
)
CONTRADICTIONS: tuple[Check, ...] = (
    refused_if(
        lambda flags, *_: flags["algo.advantage.estimator"] != "group_norm",
        "algo.advantage.estimator is {algo.advantage.estimator!r}: the hook replaces group_norm, and other estimators "
        "add a critic, a baseline or whitening that would erase RESTRAIN's signal. Set it to group_norm.",
    ),
    refused_if(
        lambda flags, *_: bool(flags["algo.kl.init_coef"]) and not flags["algo.kl.use_loss"],
        "algo.kl.init_coef is {algo.kl.init_coef} without algo.kl.use_loss: KL inside the reward would have no effect, "
        "because the hook replaces OpenRLHF's advantages. Set algo.kl.use_loss, or algo.kl.init_coef to 0.",
    ),
    refused_if(
        lambda flags, *_: bool(flags["algo.dynamic_filtering_enable"]),
        "algo.dynamic_filtering_enable drops groups by their mean reward: RESTRAIN's penalised groups all have reward "
        "0 and would never be trained on. Remove it.",
    ),
    *(
        refused_if(
            lambda flags, *_, name=name: flags[name] is not None,
            f"{name} changes rewards, which the hook replaces, so that the setting would have no effect. Remove it: a "
            "truncated rollout already counts as a missing answer.",
        )
        for name in ("reward.overlong_buffer_len", "reward.stop_properly_penalty_coef")
    ),
    refused_if(
        lambda flags, *_: not (flags["reward.clip_range"][0] <= 0 and flags["reward.clip_range"][1] >= 1),
        "reward.clip_range is {reward.clip_range}: rewards lie in [0, 1] and would be clipped. Leave it out.",
    ),
    refused_if(
        lambda flags, *_: flags["train.agent_func_path"] is not None and not is_agent(flags["train.agent_func_path"]),
        "train.agent_func_path is {train.agent_func_path!r}, which is not this project's agent: rollouts would not be "
        "scored. Remove it; to draw rollouts with that agent, write `agent: {train.agent_func_path}` into the "
        "configuration (docs/journeys/integration.md).",
    ),
    refused_if(
        lambda flags, *_: flags["reward.remote_url"] is not None,
        "reward.remote_url is {reward.remote_url!r}: this project's agent makes the rewards, so that OpenRLHF would "
        "never call that address. Remove it. To score groups in the scoring service, set `service:` in the "
        "configuration.",
    ),
    refused_if(
        lambda flags, *_: flags["ds.ring_attn_size"] > 1 and find_spec("ring_flash_attn") is None,
        "ds.ring_attn_size is {ds.ring_attn_size}, but ring attention needs the package ring_flash_attn, which is not "
        "installed. Install it, or set ds.ring_attn_size to 1.",
    ),
    refused_if(
        lambda flags, *_: (flags[THRESHOLD] or []) != sorted(flags[THRESHOLD] or []),
        f"{THRESHOLD} is {{{THRESHOLD}}}: no token lies above the first and below the second, so that none would be "
        "trained on. Leave it out, or give the lower limit first.",
    ),
    refused_if(
        lambda flags, *_: bool(flags["ds.load_in_4bit"]),
        "ds.load_in_4bit is set: vLLM would get packed 4-bit weights, which it cannot load, so that rollouts would "
        "come from another model than the one that is trained. Remove it. LoRA (ds.lora.rank) also saves memory.",
    ),
    refused_if(
        lambda flags, *_: _sums_in_fp32_for_the_host(flags) and flags["ds.zero_stage"] in (0, 2),
        "ds.grad_accum_dtype is fp32 and ds.adam_offload is set: with Adam in host memory and ZeRO {ds.zero_stage}, "
        "DeepSpeed ignores fp32 and sums gradients in the weights' type. Set ds.zero_stage to 3, or to 1 if the "
        "policy has one GPU.",
    ),
    refused_if(
        lambda flags, *_: (
            _sums_in_fp32_for_the_host(flags) and flags["ds.zero_stage"] == 1 and GpuLayout.of(flags).policy > 1
        ),
        "ds.grad_accum_dtype is fp32 and ds.adam_offload is set under ZeRO 1: on several GPUs DeepSpeed would train "
        "each GPU's part of the weights with only that GPU's gradients. Set ds.zero_stage to 3.",
    ),
    refused_if(
        lambda flags, *_: flags["ds.lora.rank"] > 0 and flags["ds.zero_stage"] == PARTITIONED_WEIGHTS,
        "ds.lora.rank is {ds.lora.rank} and ds.zero_stage is 3: vLLM needs base and adapter merged on one GPU, but "
        "ZeRO 3 gives each GPU only a part of them. Set ds.zero_stage to 2: an adapter is small, so that partitioning "
        "saves little.",
    ),
    refused_if(
        lambda flags, *_: flags["ds.lora.rank"] > 0 and flags["ds.tensor_parallel_size"] > 1,
        "ds.lora.rank is {ds.lora.rank} and ds.tensor_parallel_size is {ds.tensor_parallel_size}: DeepSpeed would "
        "split the layers that the adapter is made of. Set ds.tensor_parallel_size to 1.",
    ),
    refused_if(
        lambda flags, *_: flags["ds.lora.rank"] > 0 and bool(flags["train.enable_ema"]),
        "ds.lora.rank is {ds.lora.rank} and train.enable_ema is set: OpenRLHF keeps its moving average in a model "
        "without an adapter, and would mix up weights. Remove one of the two.",
    ),
    refused_if(
        lambda flags, *_: bool(flags["train.enable_ema"]) and bool(flags["ckpt.load_enable"]),
        "train.enable_ema and ckpt.load_enable are set: OpenRLHF's checkpoints do not contain the moving average, so "
        "that a resumed run would restart the average from the base model and save that as its result. Remove "
        "train.enable_ema, or set ckpt.load_enable to false (`restrain train` turns that on): a run that stops then "
        "starts again from the beginning.",
    ),
    refused_if(
        lambda flags, *_: bool(flags["algo.kl.target"]),
        "algo.kl.target is {algo.kl.target}: OpenRLHF would adapt the KL coefficient to a KL that the prompt weight "
        "has already scaled, and go back to algo.kl.init_coef after a restart. Remove it: algo.kl.init_coef then "
        "stays constant.",
    ),
    refused_if(
        lambda flags, *_: flags["critic.freezing_steps"] >= 0,
        "critic.freezing_steps is {critic.freezing_steps}: there is no critic to train first, and OpenRLHF would not "
        "train the policy for that many steps and one more. Remove it.",
    ),
    refused_if(
        lambda flags, *_: bool(flags["reward.normalize_enable"]),
        "reward.normalize_enable normalises rewards, which the hook replaces. Remove it.",
    ),
)
