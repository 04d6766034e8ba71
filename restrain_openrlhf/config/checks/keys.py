"""Refuses flags of OpenRLHF and keys of the configuration that would change RESTRAIN's maths, or stop a run halfway."""

import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.answers import AnswerKind
from restrain_openrlhf.answers.asked import why_unread
from restrain_openrlhf.answers.kinds.mixed import COLUMN
from restrain_openrlhf.config.checks.model_files import template_of, unfit_files
from restrain_openrlhf.config.documents import CHAT_TEMPLATE, shipped_yaml
from restrain_openrlhf.config.gpu_layout import GpuLayout
from restrain_openrlhf.config.host_flags import BOUNDS, Flags, is_agent, is_within
from restrain_openrlhf.config.yaml_file import HookConfig, KeepRollouts, RunConfig
from restrain_openrlhf.machine.host_releases import installed
from restrain_openrlhf.method import Method
from restrain_openrlhf.method.rollout_plans import EntropyTrees, Independent, RolloutPlan

Check = Callable[[Flags, HookConfig, Method], str | None]
# The ZeRO stage that partitions the weights themselves.
PARTITIONED_WEIGHTS = 3
REFUSED = Path(__file__).parents[1] / "refused_settings.yaml"
THRESHOLD = "algo.advantage.is_correction_threshold"
UNSAID = (
    f"{CHAT_TEMPLATE} is not set, and the model's tokenizer has a chat template. Set it to true for an "
    "instruction-tuned model, whose prompts then go through that template and not through data.input_template; or to "
    "false for a base model, whose tokenizer may have a template as well. (Without a configuration, `restrain "
    "reference` has --apply-chat-template and --no-apply-chat-template.)"
)


def _value(name: str, flags: Flags, config: HookConfig, method: Method) -> Any:
    """The value of a flag, of a key of the configuration, or a fact of the method or of the layout of GPUs."""
    if name in flags:
        return flags[name]
    owner, _, fact = name.rpartition(".")
    return getattr(GpuLayout.of(flags) if owner == "layout" else method if owner else config, fact)


def refused_if(holds: Callable[[Flags, HookConfig, Method], bool], message: str) -> Check:
    """A check with a message, in which `{name}` and `{name!r}` are replaced by the values of flags, keys and facts."""

    def check(flags: Flags, config: HookConfig, method: Method) -> str | None:
        def value(found: re.Match[str]) -> str:
            # Of a copy, because `restrain integrate` notes which flags a check reads to decide.
            return (repr if found[2] else str)(_value(found[1], dict(flags), config, method))

        return re.sub(r"\{([\w.]+)(!r)?\}", value, message) if holds(flags, config, method) else None

    # The documentation's page of refused flags is made from the docstrings of checks.
    check.__doc__ = message
    return check


class Combination(BaseModel):
    """Settings that are refused together, and the reason, as refused_settings.yaml has them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    when: Mapping[str, Any]
    reason: str

    def holds(self, flags: Flags, config: HookConfig, method: Method) -> bool:
        """Whether each setting is as it is written here."""
        return all(_is(_value(name, flags, config, method), wanted) for name, wanted in self.when.items())


def _is(value: Any, wanted: Any) -> bool:
    """Whether a value is as refused_settings.yaml writes it."""
    if isinstance(wanted, bool):
        return bool(value) is wanted
    if isinstance(wanted, list):
        return value in wanted
    if isinstance(wanted, str) and wanted.startswith("not "):
        return not _is(value, yaml.safe_load(wanted.removeprefix("not ")))
    if isinstance(wanted, str) and re.search(r"\d", wanted):
        return value is not None and is_within(wanted, value)
    return bool(value == wanted)


def combinations(section: str) -> tuple[Check, ...]:
    """A check for each combination of a section of refused_settings.yaml."""
    entries = shipped_yaml(REFUSED)[section]
    return tuple(refused_if(each.holds, each.reason) for each in map(Combination.model_validate, entries))


def refused_by_release(flags: Flags, _config: HookConfig, _method: Method) -> str | None:
    """A flag that machine/host_releases.yaml refuses for the installed release."""
    given = ((name, reason) for name, reason in installed().refused.items() if flags[name] is not None)
    return next((f"{name} is {flags[name]!r}: {reason}. Leave it out." for name, reason in given), None)


def planned_rollouts(flags: Flags, _config: HookConfig, method: Method) -> str | None:
    """The method draws its rollouts itself (votes, trees), and gives another number than OpenRLHF expects."""
    plan, n = method.rollouts, flags["rollout.n_samples_per_prompt"]
    return other_size(plan, n) if plan else None


def other_size(plan: RolloutPlan, n: int) -> str | None:
    """Why a plan does not go with the host's n, if it trains on another number of rollouts."""
    if plan.trained == n:
        return None
    return (
        f"The method draws {plan.voters} rollouts of a prompt and trains on {plan.trained} of them, but "
        f"rollout.n_samples_per_prompt is {n}. Set it to {plan.trained} (and train.batch_size to match), or change "
        "the method's votes, train_on, trees, forks or branches."
    )


def unfit_plan(plan: RolloutPlan | None) -> str | None:
    """Why the user's own agent cannot draw the rollouts of a plan, if it cannot."""
    if plan is None or (isinstance(plan, Independent) and plan.top_k is None):
        return None
    found = "forks responses at single tokens" if isinstance(plan, EntropyTrees) else "reads every token's entropy"
    return (
        f"`agent:` is set, but the method {found}, which trajectories of your own agent do not support. Choose a "
        "method whose rollouts are drawn one by one (restrain, ttrl, srt_offline), or remove `agent:`."
    )


def agents_plan(_flags: Flags, config: HookConfig, method: Method) -> str | None:
    """`agent:` names your own agent, which cannot draw the rollouts that the method needs."""
    return None if config.agent is None else unfit_plan(method.rollouts)


def penalty_of_all(flags: Flags, _config: HookConfig, method: Method) -> str | None:
    """The method would penalise even a unanimous group (kappa above n), so that it would learn nothing."""
    return method.why_useless(flags["rollout.n_samples_per_prompt"])


def template_without_place(flags: Flags, *_: object) -> str | None:
    """The template has no place for the prompt, or several, or other braces that are not doubled."""
    return unfit_template(flags["data.input_template"])


def unfit_template(template: str | None) -> str | None:
    """Why OpenRLHF, which calls the template's `format` (datasets/prompts_dataset.py), could not put a prompt in it."""
    probe = "a prompt"
    try:
        fits = template is None or probe in template.format(probe)
    except (AttributeError, IndexError, KeyError, ValueError):
        fits = False
    wanted = "it must have {} once, in the prompt's place, and every other brace twice: {{ and }}."
    return None if fits else f"data.input_template is {template!r}: {wanted}"


def template_unlike_answers(flags: Flags, config: HookConfig, _method: Method) -> str | None:
    """data.input_template asks for a form that the kind of answer does not read, or the chat template replaces it."""
    template, kind = flags["data.input_template"], config.answers
    if not template or flags[CHAT_TEMPLATE]:
        return why_dropped(template, flags[CHAT_TEMPLATE], kind)
    # Each row may name a kind of its own, and an agent takes the answer out of its turns in its own way.
    is_known = COLUMN not in kind.row_columns() and config.agent is None
    return f"data.input_template {reason}" if is_known and (reason := why_unread(kind, template)) else None


def why_dropped(template: str | None, in_chat_template: bool | None, kind: AnswerKind) -> str | None:
    """Why OpenRLHF drops the input template (datasets/prompts_dataset.py, preprocess_data); None if it does not."""
    if not (template and in_chat_template):
        return None
    return (
        f"{CHAT_TEMPLATE} is true, so that data.input_template has no effect: OpenRLHF drops {template!r}. Set "
        "data.input_template to null, and ask for the answer in the prompts themselves, such as by "
        f'"{kind.instruction_for({})}"; or set {CHAT_TEMPLATE} to false.'
    )


def uncorrected_rollouts(flags: Flags, *_: object) -> str | None:
    """OpenRLHF would train on the asynchronous trainer's rollouts of earlier weights as if they were new.

    The gradient would not be the paper's (tests/hook/test_one_step_old.py). Before 0.11.2 the flag is
    algo.advantage.is_correction_enable.
    """
    level = flags["algo.advantage.is_correction_level"]
    if not flags["train.async_enable"] or level not in (None, "off") or flags["algo.advantage.is_correction_enable"]:
        return None
    return (
        "train.async_enable is set without algo.advantage.is_correction_level: OpenRLHF would train on rollouts of "
        "earlier weights as if they were new, with another gradient than the paper's. Set "
        "algo.advantage.is_correction_level to token. A method that draws its rollouts itself (votes, trees) cannot "
        "use it: remove train.async_enable."
    )


def unsaid_template(flags: Flags, *_: object) -> str | None:
    """The tokenizer has a chat template, and data.apply_chat_template is neither true nor false.

    A model whose tokenizer is not on this machine yet is asked about when its tokenizer is loaded. OpenRLHF's own
    command line is not asked, where the switch cannot be false.
    """
    model = flags["actor.model_name_or_path"]
    return UNSAID if flags[CHAT_TEMPLATE] is None and model and template_of(model) else None


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
    *combinations("contradictions"),
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
        lambda flags, *_: flags["ds.ring_attn_size"] > 1 and find_spec("ring_flash_attn") is None,
        "ds.ring_attn_size is {ds.ring_attn_size}, but ring attention needs the package ring_flash_attn, which is not "
        "installed. Install it, or set ds.ring_attn_size to 1.",
    ),
    refused_if(
        lambda flags, *_: (flags[THRESHOLD] or []) != sorted(flags[THRESHOLD] or []),
        f"{THRESHOLD} is {{{THRESHOLD}}}: no token lies above the first and below the second, so that none would be "
        "trained on. Leave it out, or give the lower limit first.",
    ),
)
KEYS: tuple[Check, ...] = (
    *combinations("keys"),
    # This comes before the check of the plan's size, because changing the size would not help.
    agents_plan,
    planned_rollouts,
    penalty_of_all,
    refused_if(
        lambda flags, config, _method: flags["data.label_key"] in config.answers.row_columns(),
        "data.label_key is {data.label_key!r}, a column that the kind of answer under `answers:` reads for votes: they "
        "would see gold. Name the column of gold, or take this column out of the kind's settings.",
    ),
    refused_if(
        lambda _flags, config, _method: config.rollouts != KeepRollouts() and config.metrics is None,
        "rollouts is set, but metrics is not: rollouts are kept in the folder of the metrics. Set metrics to a file.",
    ),
    uncorrected_rollouts,
    template_without_place,
    refused_if(
        lambda flags, config, _method: (
            isinstance(config, RunConfig)
            and config.stop is not None
            and config.stop.ends
            and not (flags["ckpt.save_hf"] and flags["ckpt.save_steps"] > 0)
        ),
        "`stop:` is set, but no model is saved on the way, so that there would be no last good one. Set ckpt.save_hf "
        "to true and ckpt.save_steps to the number of steps between two models, or leave `stop:` out.",
    ),
    template_unlike_answers,
    refused_if(
        lambda flags, config, _method: (
            isinstance(config, RunConfig)
            and (
                Path(flags["ckpt.output_dir"]) != config.run_dir / "model"
                or (flags["ckpt.save_hf"] and Path(flags["ckpt.path"]) != config.run_dir / "checkpoints")
            )
        ),
        "ckpt.output_dir is {ckpt.output_dir} and ckpt.path {ckpt.path}: the run's models would not be in its folder, "
        "{run_dir}, where stop rules, evaluations and `restrain publish` look for them. Leave both out, and set "
        "run_dir.",
    ),
)
# These come last, because they ask for settings to be added and not to be changed.
INPUTS: tuple[Check, ...] = (
    *combinations("inputs"),
    refused_if(
        lambda _flags, config, method: config.reference is None and method.needs_reference,
        "The method {method.name!r} needs the frozen model's vote on every prompt, but no reference was given. Make "
        "one with `restrain reference` and name it under `reference:`.",
    ),
    unsaid_template,
    unfit_files,
)
