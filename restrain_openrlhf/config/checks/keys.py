"""Checks that the method, the configuration's keys and OpenRLHF's flags go together."""

import json
from contextlib import suppress

from restrain_openrlhf.config.blocks import KeepRollouts
from restrain_openrlhf.config.checks.contradictions import Check, refused_if
from restrain_openrlhf.config.documents import CHAT_TEMPLATE
from restrain_openrlhf.config.host_flags import Flags
from restrain_openrlhf.config.memory.shape import model_file
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.method import Method, PromptFacts, ReferenceVote
from restrain_openrlhf.method.rollout_plans import EntropyTrees, Independent, RolloutPlan

UNSAID = (
    f"{CHAT_TEMPLATE} is not set, and the model's tokenizer has a chat template. Set it to true for an "
    "instruction-tuned model, whose prompts then go through that template and not through data.input_template; or to "
    "false for a base model, whose tokenizer may have a template as well. (Without a configuration, `restrain "
    "reference` has --apply-chat-template and --no-apply-chat-template.)"
)


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
    n = flags["rollout.n_samples_per_prompt"]
    facts = PromptFacts(ReferenceVote(n, n), stored_class=0, gold_class=0, entropies=(1.0,) * n)
    voters = method.rollouts.voters if method.rollouts else n
    if not method.score([0] * voters, facts).penalized:
        return None
    return (
        f"The method {method.name!r} penalises even a unanimous group of rollout.n_samples_per_prompt = {n}: its kappa "
        "is above that. Lower kappa, or give it as a share below 1."
    )


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


def has_chat_template(model: str) -> bool:
    """Whether the files of a model's tokenizer have a chat template. False if the files are not on this machine."""
    if model_file(model, "chat_template.jinja") is not None:
        return True
    path = model_file(model, "tokenizer_config.json")
    # A file that is damaged is refused when the tokenizer is loaded.
    with suppress(ValueError, AttributeError):
        return path is not None and bool(json.loads(path.read_bytes()).get("chat_template"))
    return False


def unsaid_template(flags: Flags, *_: object) -> str | None:
    """The tokenizer has a chat template, and data.apply_chat_template is neither true nor false.

    A model whose tokenizer is not on this machine yet is asked about when its tokenizer is loaded. OpenRLHF's own
    command line is not asked, where the switch cannot be false.
    """
    model = flags["actor.model_name_or_path"]
    return UNSAID if flags[CHAT_TEMPLATE] is None and model and has_chat_template(model) else None


KEYS: tuple[Check, ...] = (
    refused_if(
        lambda flags, _config, method: (
            not method.reads_gold and bool(flags["eval.dataset"]) and flags["ckpt.best_metric_key"] != "none"
        ),
        "eval.dataset is set and ckpt.best_metric_key is {ckpt.best_metric_key!r}: the best checkpoint would be chosen "
        "by gold answers. Set ckpt.best_metric_key to none.",
    ),
    refused_if(
        lambda flags, _config, method: (
            method.rollouts is not None and flags["algo.advantage.is_correction_level"] not in (None, "off")
        ),
        "algo.advantage.is_correction_level is {algo.advantage.is_correction_level!r}: it needs the log-probability of "
        "every sampled token, which rollouts drawn by the method (votes, trees) do not have. Set it to off.",
    ),
    refused_if(
        lambda flags, _config, method: (
            method.rollouts is not None and bool(flags["algo.advantage.is_correction_enable"])
        ),
        "algo.advantage.is_correction_enable is set: it needs the log-probability of every sampled token, which "
        "rollouts drawn by the method (votes, trees) do not have. Remove it.",
    ),
    # This comes before the check of the plan's size, because changing the size would not help.
    agents_plan,
    planned_rollouts,
    penalty_of_all,
    refused_if(
        lambda flags, _config, method: method.reads_gold and not flags["data.label_key"],
        "The method {method!r} learns from gold answers, but data.label_key is not set. Name the column of the "
        "training file that holds them, or choose a label-free method.",
    ),
    refused_if(
        lambda flags, config, _method: flags["data.label_key"] in config.answers.row_columns(),
        "data.label_key is {data.label_key!r}, a column that the kind of answer under `answers:` reads for votes: they "
        "would see gold. Name the column of gold, or take this column out of the kind's settings.",
    ),
    refused_if(
        lambda _flags, config, _method: config.rollouts != KeepRollouts() and config.metrics is None,
        "rollouts is set, but metrics is not: rollouts are kept in the folder of the metrics. Set metrics to a file.",
    ),
    refused_if(
        lambda _flags, config, _method: config.weight_digests and config.metrics is None,
        "weight_digests is set, but metrics is not: digests are written to the folder of the metrics. Set metrics to a "
        "file.",
    ),
    refused_if(
        lambda flags, config, _method: flags["train.async_enable"] and config.steps is not None,
        "steps is {steps} and train.async_enable is set: the asynchronous trainer draws rollouts ahead, and after a "
        "restart does not know how many steps it has taken. Remove one of the two.",
    ),
    refused_if(
        lambda flags, config, _method: flags["train.async_enable"] and config.seeded_rollouts,
        "seeded_rollouts and train.async_enable are set: the asynchronous trainer draws rollouts with whatever weights "
        "were sent last, so that seeds would not reproduce them. Remove one of the two.",
    ),
    refused_if(
        lambda flags, config, _method: flags["train.async_enable"] and config.evaluate_first,
        "evaluate_first and train.async_enable are set: the asynchronous trainer evaluates only while it trains, so "
        "that the base model would not be evaluated. Remove one of the two; `restrain eval` can evaluate a base model.",
    ),
    uncorrected_rollouts,
    template_without_place,
)
# These come last, because they ask for settings to be added and not to be changed.
INPUTS: tuple[Check, ...] = (
    refused_if(
        lambda flags, *_: not flags["actor.model_name_or_path"],
        "actor.model_name_or_path is not set. Name the model to train.",
    ),
    refused_if(
        lambda flags, *_: not flags["data.prompt_dataset"],
        "data.prompt_dataset is not set. Name the training file or data set.",
    ),
    # A service that scores has the reference itself; the run then only needs one to select prompts.
    refused_if(
        lambda _flags, config, method: (
            config.reference is None
            and method.needs_reference
            and (config.service is None or method.selection is not None)
        ),
        "The method {method!r} needs the frozen model's vote on every prompt, but no reference was given. Make one "
        "with `restrain reference` and name it under `reference:`.",
    ),
    unsaid_template,
)
