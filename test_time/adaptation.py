"""One adaptation: what the user asked for, the files below its output folder, its configuration and its prompts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from restrain_openrlhf.answers import AnswerKind
from restrain_openrlhf.config.shipped import CONFIGS
from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.data.benchmarks import BENCHMARKS
from restrain_openrlhf.data.gold import PromptOnly
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.evaluation.protocol import PAPER
from restrain_openrlhf.hook.launch.train import check_flags
from restrain_openrlhf.method import build
from restrain_openrlhf.records.folder import VOTES_BEFORE, RunFolder
from restrain_openrlhf.reference.offline_pass import offline_pass
from test_time.problems import Source, instructed, keep_problems
from test_time.stopping import StopRules

# How the votes that give answers sample: as evaluations do, whatever training samples at. A rule fixed beforehand needs
# no gold. Agreement could not choose: it grows as the temperature falls, right or wrong.
VOTE_TEMPERATURE, VOTE_TOP_P = PAPER.temperature, PAPER.top_p
# Files below the output folder: the problems as the policy gets them, before its chat template, without answers; an
# answer for every problem; and a page with tables and plots.
PROMPTS, PREDICTIONS, REPORT = "prompts.jsonl", "predictions.jsonl", "report.html"
# Written for this model on one node of eight GPUs; other models and layouts by --set.
PRESETS = CONFIGS / "test_time" / "llama3.1-8b-instruct"
# The sets that presets were written for, with their numbers of problems.
SIZES = {"aime24": 30, "amc23": 40, "amc83": 83, "math500": 500}
# Saved models, to go back to the last good one; and a resumed run ends with the same weights.
DEFAULTS: Mapping[str, object] = {"openrlhf.ckpt.save_hf": True, "seeded_rollouts": True}


@dataclass(frozen=True)
class Adaptation:
    """What a user chose. `config` (else a preset by `method` and size) gives method and OpenRLHF's flags.

    `votes`: rollouts per problem, before and after training. `boxed` asks for an answer in the form that its kind is
    read in; it and `answers`: None means as the configuration says, or for `answers` the benchmark's own kind.
    `gold` and `heldout` are for the evaluation, after training. `stop`: None means that no rule ends the run.
    """

    model: str
    problems: Source
    out: Path
    config: Path | None = None
    method: str | None = None
    steps: int | None = None
    votes: int = 64
    boxed: bool | None = None
    answers: AnswerKind | None = None
    gold: Path | None = None
    heldout: tuple[Source, ...] = ()
    stop: StopRules | None = field(default_factory=StopRules)
    overrides: Mapping[str, object] = field(default_factory=dict)

    @property
    def has_gold(self) -> bool:
        """Whether accuracies can be measured: there is a gold file, or the test set is a known benchmark."""
        return self.gold is not None or self.problems.is_benchmark

    @property
    def kind(self) -> AnswerKind | None:
        """The kind of answer that is asked for, else the benchmark's own; None: as the configuration says."""
        if self.answers is None and self.problems.is_benchmark:
            return BENCHMARKS[self.problems.word].kind
        return self.answers

    @property
    def training(self) -> RunFolder:
        """The training run: metrics.jsonl, checkpoints, TensorBoard, log."""
        return RunFolder(self.out / "train")


@dataclass(frozen=True)
class Plan:
    """`source` is the file that `config` comes from; `boxed` whether each problem has the instruction of its kind.

    `problems` are as the policy gets them, before its chat template.
    """

    source: Path
    config: RunConfig
    boxed: bool
    problems: tuple[PromptOnly, ...]


def make_plan(job: Adaptation, problems: Sequence[PromptOnly]) -> Plan:
    """The configuration for these problems, checked by itself (no model is looked for), and their wording.

    Raises ConfigError for a wrong method, bad flags, an impossible layout, and a method that needs gold.
    """
    source = job.config or preset_path(job.method or "restrain", len(problems))
    kind = {} if job.kind is None else {"answers": job.kind.model_dump(mode="json")}
    chosen = {**DEFAULTS, **_own(job), **method_overrides(source, job.method), **kind, **job.overrides}
    first = load_run_config(source, chosen)
    length = length_overrides(job.steps, len(problems), first)
    config = load_run_config(source, {**chosen, **length, **_own(job), "openrlhf.data.input_template": None})
    _refuse_gold(config)
    check_flags(config)
    _refuse_part(config, len(problems))
    chats = bool(config.openrlhf.get("data.apply_chat_template"))
    instructs = chats if job.boxed is None else job.boxed
    worded = instructed(problems, config.answers) if instructs else list(problems)
    # It goes into the file of prompts and out of the flags, so that evaluation words problems alike.
    template = first.openrlhf.get("data.input_template")
    if template and not chats:
        worded = [each.model_copy(update={"problem": str(template).format(each.problem)}) for each in worded]
    return Plan(source, config, instructs, tuple(worded))


def write_prompts(job: Adaptation, plan: Plan) -> None:
    """Write the prompts, and check them with the model's tokenizer before the model is loaded.

    Raises DataError for problems that cannot be trained on, ConfigError for a model that cannot be had.
    """
    if not (job.out / VOTES_BEFORE).exists():
        (job.out / PROMPTS).unlink(missing_ok=True)
    keep_problems(job.out / PROMPTS, plan.problems)
    offline_pass(plan.config, n=job.votes)


def preset_path(method: str, count: int) -> Path:
    """The preset of the set whose size is nearest to `count` problems, by ratio.

    Raises ConfigError for a method without one.
    """
    nearest = PRESETS / min(SIZES, key=lambda name: abs(math.log(SIZES[name] / count)))
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


def length_overrides(steps: int | None, prompts: int, config: RunConfig) -> Mapping[str, object]:
    """`--steps` as keys: as many visits to every problem as they need."""
    if steps is None:
        return {}
    if "rollout.batch_size" not in config.openrlhf:
        raise ConfigError("openrlhf: rollout.batch_size is not set. Set it to the number of problems per step.")
    batches = -(-prompts // int(config.openrlhf["rollout.batch_size"]))
    return {"steps": steps, "openrlhf.train.num_episodes": -(-steps // batches)}


def _own(job: Adaptation) -> Mapping[str, object]:
    """Keys that an adaptation sets, whatever the configuration says."""
    return {
        "run_dir": str(job.training.path),
        "reference": str(job.out / VOTES_BEFORE),
        "reference_n": job.votes,
        "openrlhf.actor.model_name_or_path": job.model,
        "openrlhf.data.prompt_dataset": str(job.out / PROMPTS),
        "openrlhf.data.input_key": "problem",
    }


def _refuse_part(config: RunConfig, count: int) -> None:
    most = config.openrlhf.get("data.max_samples")
    if most is not None and int(most) < count:
        raise ConfigError(
            f"openrlhf: data.max_samples is {most}, but all {count} problems are answered. Leave it out, or "
            "give a file with fewer problems."
        )


def _refuse_gold(config: RunConfig) -> None:
    if build(config.method).reads_gold:
        raise ConfigError(
            f"The method {config.method.name!r} learns from gold, but a test set has none. Choose another method."
        )
    for name in ("eval.dataset", "data.label_key"):
        if config.openrlhf.get(name):
            raise ConfigError(
                f"openrlhf: {name} is set, but gold is kept out of test-time training. Leave it out; give --gold and "
                "--heldout, which are read after training."
            )
