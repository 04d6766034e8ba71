"""The plan of an adaptation: its configuration (a preset or a file) and its file of prompts, both checked."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.data.gold_split import PromptOnly
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method import build
from restrain_openrlhf.run.reference_pass import offline_pass
from restrain_openrlhf.run.train import check_flags
from restrain_openrlhf.shipped import CONFIGS
from test_time.adaptation import Adaptation, AdaptationFolder
from test_time.problems import boxed, keep_problems

# Written for this model on one node of eight GPUs; other models and layouts by --set.
PRESETS = CONFIGS / "test_time" / "llama3.1-8b-instruct"
# The sets that presets were written for, with their numbers of problems.
SIZES = {"aime24": 30, "amc23": 40, "amc83": 83, "math500": 500}
# Where the files of each `--preset` are below a set's folder.
FOLDERS = {"paper": ".", "ttrl_protocol": "ttrl_protocol"}
DEFAULTS: Mapping[str, object] = {
    # Saved models, to go back to the last good one.
    "openrlhf.ckpt.save_hf": True,
    # A resumed run ends with the same weights.
    "seeded_rollouts": True,
}


@dataclass(frozen=True)
class Plan:
    """`source` is the file that `config` comes from; `boxed` whether each problem asks for a boxed answer.

    `problems` are as the policy gets them, before its chat template.
    """

    source: Path
    config: RunConfig
    boxed: bool
    problems: tuple[PromptOnly, ...]


@dataclass(frozen=True)
class Configured:
    """`source` is the file that `config` comes from; `first` is as it reads before an adaptation's own keys."""

    source: Path
    first: RunConfig
    config: RunConfig


def configure(job: Adaptation, count: int) -> Configured:
    """The configuration for `count` problems, checked by itself: no model is looked for.

    Raises ConfigError for a wrong preset or method, bad flags, an impossible layout, and a method that needs gold.
    """
    source = job.config or preset_path(job.method or "restrain", job.preset, count)
    chosen = {**DEFAULTS, **_own(job), **method_overrides(source, job.method), **job.overrides, **_chat(job)}
    first = load_run_config(source, chosen)
    length = length_overrides(job.steps, job.epochs, count, first)
    config = load_run_config(source, {**chosen, **length, **_own(job), "openrlhf.data.input_template": None})
    _refuse_gold(config)
    check_flags(config)
    return Configured(source, first, config)


def make_plan(job: Adaptation, problems: Sequence[PromptOnly], configured: Configured) -> Plan:
    """Write the prompts, and check them with the model's tokenizer before the model is loaded.

    Raises DataError for problems that cannot be trained on, ConfigError for a model that cannot be had.
    """
    config = configured.config
    ask_for_box = bool(config.openrlhf.get("data.apply_chat_template")) if job.boxed is None else job.boxed
    prompts = worded(configured.first, boxed(problems) if ask_for_box else problems)
    _write_prompts(job, prompts)
    offline_pass(config, n=job.votes)
    return Plan(configured.source, config, ask_for_box, tuple(prompts))


def preset_path(method: str, preset: str, count: int) -> Path:
    """The preset of the set whose size is nearest to `count` problems, by ratio.

    Raises ConfigError for an unknown preset, and for a method without one.
    """
    if preset not in FOLDERS:
        raise ConfigError(
            f"--preset {preset!r}: is no preset. Known: {', '.join(FOLDERS)}, of the nearest size of set; name any "
            "other with --config."
        )
    nearest = PRESETS / min(SIZES, key=lambda name: abs(math.log(SIZES[name] / count))) / FOLDERS[preset]
    known = sorted(path.stem for path in nearest.glob("*.yaml"))
    if method not in known:
        raise ConfigError(
            f"--method {method!r}: has no preset for test-time RL. Known: {', '.join(known)}; for another method of "
            "`restrain train` give --config CONFIG."
        )
    return nearest / f"{method}.yaml"


def method_overrides(config: Path, method: str | None) -> Mapping[str, object]:
    """`--method` over a configuration file: another method starts from its own defaults."""
    if method is None or method == load_run_config(config, {"run_dir": "unused"}).method.name:
        return {}
    return {"method": {"name": method}}


def length_overrides(steps: int | None, epochs: int | None, prompts: int, config: RunConfig) -> Mapping[str, object]:
    """`--steps` or `--epochs` as keys; an epoch visits every problem. Raises ConfigError where both are given."""
    if steps is not None and epochs is not None:
        raise ConfigError("--steps and --epochs are both given. Give one: an epoch is every problem once.")
    if steps is None:
        return {} if epochs is None else {"openrlhf.train.num_episodes": epochs}
    if "rollout.batch_size" not in config.openrlhf:
        raise ConfigError("openrlhf: rollout.batch_size is not set. Say how many problems a step has.")
    batches = -(-prompts // int(config.openrlhf["rollout.batch_size"]))
    return {"steps": steps, "openrlhf.train.num_episodes": -(-steps // batches)}


def _chat(job: Adaptation) -> Mapping[str, object]:
    return {} if job.chat is None else {"openrlhf.data.apply_chat_template": job.chat}


def _own(job: Adaptation) -> Mapping[str, object]:
    """Keys that an adaptation sets, whatever the configuration says."""
    folder = AdaptationFolder(job.out)
    return {
        "run_dir": str(folder.training.path),
        "reference": str(folder.before),
        "reference_n": job.votes,
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
