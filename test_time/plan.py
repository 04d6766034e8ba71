"""From what a user asked for to a checked configuration and the file of prompts; nothing heavy is started."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.data.gold_split import PromptOnly
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method import build
from restrain_openrlhf.run.reference_pass import offline_pass
from restrain_openrlhf.run.train import check_flags
from test_time.job import Adaptation, AdaptationFolder
from test_time.presets import length_overrides, method_overrides, preset_path
from test_time.problems import boxed, keep_problems

DEFAULTS: Mapping[str, object] = {
    # Models on the way, to go back to the last good one.
    "openrlhf.ckpt.save_hf": True,
    # A run that was killed ends where it would have ended.
    "seeded_rollouts": True,
}


@dataclass(frozen=True)
class Plan:
    """`source` is the file that `config` comes from; `boxed` whether each problem asks for a boxed answer."""

    source: Path
    config: RunConfig
    boxed: bool


def make_plan(job: Adaptation, problems: Sequence[PromptOnly]) -> Plan:
    """Choose the configuration, write the prompts, and check all that can be checked before a model is loaded.

    Raises ConfigError for flags or a method that cannot be, DataError for problems that cannot be trained on.
    """
    source = job.config or preset_path(job.method or "restrain", job.protocol, len(problems))
    chosen = {**DEFAULTS, **_own(job), **method_overrides(source, job.method), **job.overrides, **_chat(job)}
    first = load_run_config(source, chosen)
    length = length_overrides(job.steps, job.epochs, len(problems), first)
    config = load_run_config(source, {**chosen, **length, **_own(job), "openrlhf.data.input_template": None})
    _refuse_gold(config)
    check_flags(config)
    ask_for_box = bool(config.openrlhf.get("data.apply_chat_template")) if job.boxed is None else job.boxed
    _write_prompts(job, worded(first, boxed(problems) if ask_for_box else problems))
    offline_pass(config, n=job.votes)
    return Plan(source, config, ask_for_box)


def _chat(job: Adaptation) -> Mapping[str, object]:
    return {} if job.chat is None else {"openrlhf.data.apply_chat_template": job.chat}


def _own(job: Adaptation) -> Mapping[str, object]:
    """What an adaptation decides itself, whatever the configuration says."""
    folder = AdaptationFolder(job.out)
    return {
        "run_dir": str(folder.training.path),
        "reference": str(folder.before),
        "openrlhf.actor.model_name_or_path": job.model,
        "openrlhf.data.prompt_dataset": str(folder.problems),
        "openrlhf.data.input_key": "problem",
    }


def worded(config: RunConfig, problems: Sequence[PromptOnly]) -> list[PromptOnly]:
    """The problems within the configuration's own template (data.input_template), where it is used.

    It goes into the file of prompts and out of the flags, so that evaluation words problems alike.
    """
    template = config.openrlhf.get("data.input_template")
    if not template or config.openrlhf.get("data.apply_chat_template"):
        return list(problems)
    return [each.model_copy(update={"problem": str(template).format(each.problem)}) for each in problems]


def _refuse_gold(config: RunConfig) -> None:
    if build(config.method).reads_gold:
        raise ConfigError(
            f"The method {config.method.name!r} learns from gold, and a test set has none. Choose another."
        )
    for name in ("eval.dataset", "data.label_key"):
        if config.openrlhf.get(name):
            raise ConfigError(
                f"openrlhf: {name} is set. Gold is kept out of test-time training: leave it out, and give --gold and "
                "--heldout, which are read after it."
            )


def _write_prompts(job: Adaptation, problems: Sequence[PromptOnly]) -> None:
    folder = AdaptationFolder(job.out)
    if not folder.before.exists():
        folder.problems.unlink(missing_ok=True)
    keep_problems(folder.problems, problems)
