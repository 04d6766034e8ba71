"""Host flags that would silently change RESTRAIN's maths, or stop a run halfway, each refused with its reason."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.hook.device import Device
from restrain_openrlhf.hook.host_flags import is_agent
from restrain_openrlhf.hook.layout import refuse_impossible
from restrain_openrlhf.method import Method, PromptFacts, ReferenceVote, build
from restrain_openrlhf.rollouts import RolloutPlan

Flags = dict[str, Any]
# The ZeRO stage that partitions the weights themselves.
PARTITIONED_WEIGHTS = 3


@dataclass(frozen=True)
class Contradiction:
    """A condition on the host's flags under which a run must not start."""

    holds: Callable[[Flags], bool]
    message: str


CONTRADICTIONS = (
    Contradiction(
        lambda flags: flags["algo.advantage.estimator"] != "group_norm",
        "algo.advantage.estimator is {algo.advantage.estimator!r}: the hook replaces the estimator, and others add a "
        "critic, a baseline or whitening that erase RESTRAIN's signal. Set it to group_norm.",
    ),
    Contradiction(
        lambda flags: flags["rollout.n_samples_per_prompt"] == 1,
        "rollout.n_samples_per_prompt is 1: a vote needs a group. Set it to 2 or more (the paper uses 16).",
    ),
    Contradiction(
        lambda flags: bool(flags["algo.kl.init_coef"]) and not flags["algo.kl.use_loss"],
        "algo.kl.init_coef is {algo.kl.init_coef} without algo.kl.use_loss: KL inside the reward would be thrown away "
        "with the host's advantages. Set algo.kl.use_loss, or algo.kl.init_coef to 0.",
    ),
    Contradiction(
        lambda flags: bool(flags["algo.dynamic_filtering_enable"]),
        "algo.dynamic_filtering_enable drops groups by their mean reward; RESTRAIN's penalised groups all have reward "
        "0 and would never be trained on. Remove it.",
    ),
    Contradiction(
        lambda flags: flags["reward.overlong_buffer_len"] is not None,
        "reward.overlong_buffer_len changes rewards that the hook replaces, so the penalty would have no effect. "
        "Remove it: a truncated rollout already counts as a missing answer.",
    ),
    Contradiction(
        lambda flags: flags["reward.stop_properly_penalty_coef"] is not None,
        "reward.stop_properly_penalty_coef changes rewards that the hook replaces, so the penalty would have no "
        "effect. Remove it: a truncated rollout already counts as a missing answer.",
    ),
    Contradiction(
        lambda flags: not _contains_unit_interval(flags["reward.clip_range"]),
        "reward.clip_range is {reward.clip_range}: rewards lie in [0, 1] and would be clipped. Leave it out.",
    ),
    Contradiction(
        lambda flags: flags["train.agent_func_path"] is not None and not is_agent(flags["train.agent_func_path"]),
        "train.agent_func_path is {train.agent_func_path!r}, which is not this project's agent: rollouts would not be "
        "scored. Remove it, or give what `restrain agent-path` prints.",
    ),
    Contradiction(
        lambda flags: flags["reward.remote_url"] is not None,
        "reward.remote_url is {reward.remote_url!r}: the agent makes the rewards, and OpenRLHF would not ask there. "
        "Remove it. To score groups by the reward service, set `service:` in the hook's configuration.",
    ),
    Contradiction(
        lambda flags: flags["ds.ring_attn_size"] > 1 and find_spec("ring_flash_attn") is None,
        "ds.ring_attn_size is {ds.ring_attn_size}, and ring attention is the package ring_flash_attn, which is not "
        "installed. Install it, or set ds.ring_attn_size to 1.",
    ),
    Contradiction(
        lambda flags: bool(flags["ds.load_in_4bit"]),
        "ds.load_in_4bit is set: vLLM would be sent packed 4-bit weights, which it cannot load, and rollouts would be "
        "another model's than the one that is trained. Remove it. LoRA (ds.lora.rank) needs less memory too.",
    ),
    Contradiction(
        lambda flags: _has_lora(flags) and flags["ds.zero_stage"] == PARTITIONED_WEIGHTS,
        "ds.lora.rank is {ds.lora.rank} and ds.zero_stage is 3: the whole weights that vLLM needs are made where base "
        "and adapter are whole, and ZeRO 3 leaves a part of them to each GPU. Set ds.zero_stage to 2: little is "
        "trained, so that little is left to divide.",
    ),
    Contradiction(
        lambda flags: _has_lora(flags) and flags["ds.tensor_parallel_size"] > 1,
        "ds.lora.rank is {ds.lora.rank} and ds.tensor_parallel_size is {ds.tensor_parallel_size}: DeepSpeed would "
        "split the layers that the adapter is made of. Set ds.tensor_parallel_size to 1.",
    ),
    Contradiction(
        lambda flags: _has_lora(flags) and bool(flags["train.enable_ema"]),
        "ds.lora.rank is {ds.lora.rank} and train.enable_ema is set: OpenRLHF's moving average is of a model without "
        "adapter, and would take one weight for another. Remove one of the two.",
    ),
    Contradiction(
        lambda flags: bool(flags["train.enable_ema"]) and bool(flags["ckpt.load_enable"]),
        "train.enable_ema and ckpt.load_enable are set: OpenRLHF's checkpoints have no moving average, so that a run "
        "that goes on from one would begin it anew from the base model, and save that as its result. Remove "
        "train.enable_ema, or set ckpt.load_enable to false (`restrain train` sets it): a run that stops begins again.",
    ),
    Contradiction(
        lambda flags: bool(flags["algo.kl.target"]),
        "algo.kl.target is {algo.kl.target}: OpenRLHF would steer the KL coefficient by the KL that the prompt weight "
        "has scaled already, and begin at algo.kl.init_coef again after a restart. Remove it: algo.kl.init_coef is "
        "kept as it is.",
    ),
    Contradiction(
        lambda flags: flags["critic.freezing_steps"] >= 0,
        "critic.freezing_steps is {critic.freezing_steps}: there is no critic to train first, and OpenRLHF would leave "
        "the policy untrained for one step more than that many. Remove it.",
    ),
    Contradiction(
        lambda flags: bool(flags["reward.normalize_enable"]),
        "reward.normalize_enable normalises rewards that the hook replaces. Remove it.",
    ),
)
PLAN_AND_CORRECTION = Contradiction(
    lambda flags: flags["algo.advantage.is_correction_level"] != "off",
    "algo.advantage.is_correction_level is {algo.advantage.is_correction_level!r}: it wants the log-probability of "
    "every sampled token, which rollouts drawn by the method (votes, trees) do not bring. Set it to off.",
)
GOLD_IN_SELECTION = Contradiction(
    lambda flags: bool(flags["eval.dataset"]) and flags["ckpt.best_metric_key"] != "none",
    "eval.dataset is set and ckpt.best_metric_key is {ckpt.best_metric_key!r}: the best checkpoint would be chosen by "
    "gold answers. Set ckpt.best_metric_key to none.",
)


def _has_lora(flags: Flags) -> bool:
    return bool(flags["ds.lora.rank"] > 0)


def _contains_unit_interval(bounds: tuple[float, float]) -> bool:
    low, high = bounds
    return low <= 0 and high >= 1


def refuse_settings(config: HookConfig, flags: Mapping[str, Any]) -> None:
    """The one gate of whatever shows, renders or starts a run: all that settings alone can tell, on any machine.

    Raises ConfigError for the first flag or layout with which OpenRLHF could not run, or RESTRAIN would not be trained.
    """
    refuse_other_evaluation(config)
    refuse_contradictions(argparse.Namespace(**flags), build(config.method))
    refuse_asynchronous(config, dict(flags))
    refuse_impossible(flags)


def refuse_other_evaluation(config: HookConfig) -> None:
    """Raises ConfigError where the configuration says what only the agent alone needs to be told."""
    if config.evaluation is not None:
        raise ConfigError(
            "`evaluation:` is set: it tells the agent alone how evaluation draws, and this run knows its evaluation "
            "rows. Remove it; openrlhf.eval.temperature and openrlhf.eval.n_samples_per_prompt set how they are drawn."
        )


def refuse_contradictions(arguments: argparse.Namespace, method: Method) -> None:
    """Raises ConfigError for the first contradiction between the host's flags and the method."""
    flags = vars(arguments)
    checks = CONTRADICTIONS if method.reads_gold else (*CONTRADICTIONS, GOLD_IN_SELECTION)
    for check in checks:
        if check.holds(flags):
            raise ConfigError(_fill(check.message, flags))
    if method.rollouts is not None:
        refuse_other_size(method.rollouts, flags["rollout.n_samples_per_prompt"])
        if PLAN_AND_CORRECTION.holds(flags):
            raise ConfigError(_fill(PLAN_AND_CORRECTION.message, flags))
    _refuse_penalty_of_all(method, flags["rollout.n_samples_per_prompt"])
    if method.reads_gold and not flags["data.label_key"]:
        raise ConfigError(
            f"The method {method.name!r} learns from gold answers, and data.label_key is not set. Name the column of "
            "the training file that holds them, or choose a label-free method."
        )


def refuse_other_size(plan: RolloutPlan, n: int) -> None:
    """Raises ConfigError unless the method trains on as many rollouts of a prompt as the host expects."""
    if plan.trained != n:
        raise ConfigError(
            f"The method draws {plan.voters} rollouts of a prompt to train on {plan.trained}, and "
            f"rollout.n_samples_per_prompt is {n}. Set it to {plan.trained} (and train.batch_size to match), or change "
            "the method's votes, train_on, trees, forks or branches."
        )


def refuse_unsupported(device: Device, flags: Flags) -> None:
    """Raises ConfigError for what the installed stack's accelerator cannot serve; `flags` are with the device's own."""
    for each in device.unsupported:
        if each.asked(flags):
            what = "set" if flags[each.flag] is True else repr(flags[each.flag])
            raise ConfigError(f"{each.flag} is {what}, and this {device.name} stack cannot: {each.reason}. Remove it.")


def refuse_asynchronous(config: HookConfig, flags: Flags) -> None:
    """Raises ConfigError for a setting that only the synchronous trainer can keep."""
    if not flags["train.async_enable"]:
        return
    if config.steps is not None:
        raise ConfigError(
            f"steps is {config.steps} and train.async_enable is set: that trainer draws rollouts ahead, and does not "
            "know after a restart how many steps it has taken. Remove one of the two."
        )
    if config.seeded_rollouts:
        raise ConfigError(
            "seeded_rollouts and train.async_enable are set: that trainer's rollouts come from whatever weights were "
            "last sent, so that seeds would not make them the same. Remove one of the two."
        )
    if config.evaluate_first:
        raise ConfigError(
            "evaluate_first and train.async_enable are set: that trainer evaluates only as it trains, and the base "
            "model would not be evaluated. Remove one of the two; `restrain eval` evaluates a base model by itself."
        )


def _refuse_penalty_of_all(method: Method, n: int) -> None:
    """A method that penalises even a unanimous group (kappa above n) would penalise every group and learn nothing."""
    facts = PromptFacts(ReferenceVote(n, n), stored_class=0, gold_class=0, entropies=(1.0,) * n)
    voters = method.rollouts.voters if method.rollouts else n
    if method.score([0] * voters, facts).penalized:
        raise ConfigError(
            f"The method {method.name!r} penalises even a unanimous group of rollout.n_samples_per_prompt = {n}: its "
            "kappa is above that. Lower kappa, or give it as a share below 1."
        )


def _fill(message: str, flags: Flags) -> str:
    for name, value in flags.items():
        message = message.replace(f"{{{name}!r}}", repr(value)).replace(f"{{{name}}}", str(value))
    return message
