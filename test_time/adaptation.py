"""One adaptation: what the user asked for, its output files, its configuration and its prompts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind
from restrain_openrlhf.config.checks.keys import UNSAID, unsaid_template, why_dropped
from restrain_openrlhf.config.documents import CHAT_TEMPLATE, CONFIGS
from restrain_openrlhf.config.host_flags import flags_of
from restrain_openrlhf.config.this_machine import HostRun, refuse_small_disk
from restrain_openrlhf.config.yaml_file import RunConfig, StopRules, load_run_config
from restrain_openrlhf.data.gold import PromptOnly
from restrain_openrlhf.data.prompt_reader import reworded
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.evaluation.job import PAPER
from restrain_openrlhf.method import build
from restrain_openrlhf.records.folder import VOTES_BEFORE, RunFolder
from restrain_openrlhf.reference.prompts import PromptSource, renderer
from test_time.problems import Source, instructed, keep_problems

# Votes that give answers are sampled like evaluations, however training samples. A fixed rule needs no gold. Agreement
# could not choose the temperature: it grows as the temperature falls, whether answers are right or wrong.
VOTE_TEMPERATURE, VOTE_TOP_P = PAPER.temperature, PAPER.top_p
# Files in the output folder: the problems without answers, worded for the policy but without its chat template; an
# answer for every problem; and a page with tables and plots.
PROMPTS, PREDICTIONS, REPORT = "prompts.jsonl", "predictions.jsonl", "report.html"
# The presets were written for this model on a node of eight GPUs; --set adapts them to other models and layouts.
PRESETS = CONFIGS / "test_time" / "llama3.1-8b-instruct"
# The number of problems of each set that has presets.
SIZES = {"aime24": 30, "amc23": 40, "amc83": 83, "math500": 500}
# Models are saved, so that the last good one can be used; and with seeds, a resumed run ends with the same weights.
DEFAULTS: Mapping[str, object] = {"openrlhf.ckpt.save_hf": True, "seeded_rollouts": True}


@dataclass(frozen=True)
class Adaptation:
    """What a user chose.

    Method and flags come from `config`, or else from a preset for `method` and the size of the set.

    `votes` is the number of rollouts per problem, before and after training. `boxed` says whether prompts ask for an
    answer in the form that its kind is read in. `boxed` and `answers` are None if the configuration decides, or for
    `answers` the benchmark. `gold` is for the evaluation after training. Without `stop:` in the configuration, the
    defaults of StopRules watch the run.
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
    overrides: Mapping[str, object] = field(default_factory=dict)

    @property
    def has_gold(self) -> bool:
        """Whether accuracies can be measured, because there is a gold file or the test set is a known benchmark."""
        return self.gold is not None or self.problems.is_benchmark

    @property
    def kind(self) -> AnswerKind | None:
        """The kind that was asked for, else mathematics for a benchmark; None if the configuration decides."""
        if self.answers is None and self.problems.is_benchmark:
            return MATHEMATICS
        return self.answers

    @property
    def training(self) -> RunFolder:
        return RunFolder(self.out / "train")


@dataclass(frozen=True)
class Plan:
    """The configuration of an adaptation and its worded problems, both checked.

    `source` is the file that `config` comes from. `problems` are worded for the policy, but without its chat template.
    `takes_template` says that this chat template is used because the model has one, and the configuration says neither
    yes nor no.
    """

    source: Path
    config: RunConfig
    takes_template: bool
    problems: tuple[PromptOnly, ...]


def make_plan(job: Adaptation, problems: Sequence[PromptOnly]) -> Plan:
    """The plan for these problems. The model need not be on this machine; if it is, its chat template is looked for.

    Raises ConfigError for a wrong method, a method that needs gold, bad flags, and an impossible layout.
    """
    source = job.config or preset_path(job.method or "restrain", len(problems))
    kind = {} if job.kind is None else {"answers": job.kind.model_dump(mode="json")}
    method = {} if job.method is None else {"method.name": job.method}
    chosen = {**DEFAULTS, **_own(job), **method, **kind, **job.overrides}
    first = load_run_config(source, chosen)
    length, template = length_overrides(job.steps, len(problems), first), first.openrlhf.get("data.input_template")
    takes_template = unsaid_template(flags_of(first)) is not None
    if takes_template and template:
        raise ConfigError(f"openrlhf: data.input_template is set. {UNSAID}")
    if reason := why_dropped(template, first.openrlhf.get(CHAT_TEMPLATE), first.answers):
        raise ConfigError(reason)
    chat = {f"openrlhf.{CHAT_TEMPLATE}": True} if takes_template else {}
    config = load_run_config(source, {**chosen, **chat, **length, **_own(job), "openrlhf.data.input_template": None})
    config = config.model_copy(update={"stop": config.stop or StopRules()})
    _refuse_gold(config)
    run = HostRun.startable(config)
    if not job.training.completed.exists():
        refuse_small_disk(run.flags, run.steps(len(problems)))
    _refuse_part(config, len(problems))
    chats = bool(config.openrlhf.get(CHAT_TEMPLATE))
    worded = instructed(problems, config.answers) if (chats if job.boxed is None else job.boxed) else list(problems)
    # Apply the input template here instead of by its flag, so that evaluations have the same wording.
    if not chats:
        render = renderer(PromptSource("", input_template=template), None)
        worded = [each.model_copy(update={"problem": reworded(each.problem, render)}) for each in worded]
    return Plan(source, config, takes_template, tuple(worded))


def write_prompts(job: Adaptation, plan: Plan) -> None:
    """Write the prompts. Raises DataError if the base model has voted on others in this folder."""
    if not (job.out / VOTES_BEFORE).exists():
        (job.out / PROMPTS).unlink(missing_ok=True)
    keep_problems(job.out / PROMPTS, plan.problems)


def preset_path(method: str, count: int) -> Path:
    """The preset for the set whose size is nearest to `count` problems, by ratio.

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


def length_overrides(steps: int | None, prompts: int, config: RunConfig) -> Mapping[str, object]:
    """The overrides for `--steps`, with as many episodes as the steps need."""
    if steps is None:
        return {}
    if "rollout.batch_size" not in config.openrlhf:
        raise ConfigError("openrlhf: rollout.batch_size is not set. Set it to the number of problems per step.")
    batches = -(-prompts // int(config.openrlhf["rollout.batch_size"]))
    return {"steps": steps, "openrlhf.train.num_episodes": -(-steps // batches)}


def _own(job: Adaptation) -> Mapping[str, object]:
    """The overrides that every adaptation has, whatever the configuration says."""
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
                f"openrlhf: {name} is set, but gold is kept out of test-time training. Leave it out; give --gold, "
                "which is used after training."
            )
