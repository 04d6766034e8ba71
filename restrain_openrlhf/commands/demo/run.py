"""The demo: task, offline pass, training by each method, evaluation before and after, report."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.commands.demo.report import MethodResult, write_report
from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.data.demo_tasks.problems import gold_of, write_gold, write_prompts
from restrain_openrlhf.data.demo_tasks.tasks import PREMISE, Task
from restrain_openrlhf.data.gold import PromptOnly
from restrain_openrlhf.data.jsonl import read_rows, write_rows
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.result import accuracy
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.metrics import StepRow
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.offline_pass import sample_reference
from restrain_openrlhf.training.train import train

ROLLOUTS = 16
REFERENCE_SEED, EVALUATION_SEED = 42, 7
# The host evaluates the held-out problems before training and every few steps.
EVALUATION: dict[str, object] = {
    "evaluate_first": True,
    "openrlhf.data.label_key": "answer",
    "openrlhf.eval.steps": 5,
    "openrlhf.eval.temperature": 1.0,
    "openrlhf.eval.n_samples_per_prompt": 8,
}
REAL_PROMPTS_PER_STEP = 8
# Real problems have hundreds of characters, which are this model's tokens.
REAL_SIZES: dict[str, object] = {
    "data.max_len": 2048,
    "rollout.max_new_tokens": 64,
    "rollout.batch_size": REAL_PROMPTS_PER_STEP,
    "rollout.micro_batch_size": 16,
    "train.micro_batch_size": 16,
}


@dataclass(frozen=True)
class Demo:
    """A task, and where it is run: `out` holds all that is written; methods share prompts and the offline pass."""

    out: Path
    task: Task = PREMISE
    heldout: int = 200
    overrides: tuple[tuple[str, object], ...] = ()

    @property
    def reference(self) -> Path:
        """The frozen model's votes on the training prompts."""
        return self.out / "reference.jsonl"

    @property
    def heldout_file(self) -> Path:
        """Held-out problems with their answers."""
        return self.out / "heldout.jsonl"


@dataclass(frozen=True)
class DemoListener:
    """Callbacks of the demo: a phase of a method began, a training step ended."""

    phase: Callable[[str], None] = lambda _name: None
    step: Callable[[StepRow, int], None] = lambda _row, _total: None


def run_demo(demo: Demo, listener: DemoListener) -> tuple[list[MethodResult], Path]:
    """Run the demo, or resume it: each method's result, and the report of all methods that are in the folder.

    Raises a RestrainError with the log's last lines if a part fails.
    """
    for method in demo.task.methods:
        configure(demo, method)
    write_task(demo)
    results = [run_method(demo, method, listener) for method in demo.task.methods]
    return results, write_report(demo.out, demo.task)


def run_method(demo: Demo, method: str, listener: DemoListener) -> MethodResult:
    """Sample what is not there yet of the base model, train, and evaluate; the result is written into its folder."""
    folder = demo.out / method
    folder.mkdir(parents=True, exist_ok=True)
    config = configure(demo, method)
    before, after = demo.out / "before.jsonl", folder / "after.jsonl"
    listener.phase(f"{method}: the frozen model votes on every prompt")
    sample(demo.task.model, config, demo.out / "prompts.jsonl", demo.reference, REFERENCE_SEED)
    listener.phase(f"{method}: held-out accuracy before")
    sample(demo.task.model, config, demo.heldout_file, before, EVALUATION_SEED)
    listener.phase(f"{method}: training")
    run = train(config, listener.step)
    listener.phase(f"{method}: held-out accuracy after")
    sample(run.model, config, demo.heldout_file, after, EVALUATION_SEED)
    gold = gold_of(demo.heldout_file)
    found = [load_reference(path).rows for path in (before, after)]
    scores = {name: accuracy(rows, gold) for name, rows in zip(("before", "after"), found, strict=True)}
    result = MethodResult(method=method, problems=len(found[1]), k=found[1][0].n, **scores)
    result.write(folder)
    return result


def write_task(demo: Demo) -> None:
    """The task's files. The answers are in files that only a method that reads gold, and the report, are given."""
    batch = int(load_run_config(demo.task.config).openrlhf["rollout.batch_size"])
    problems = demo.task.training_set(demo.task.steps * batch)
    write_prompts(demo.out / "prompts.jsonl", problems)
    write_gold(demo.out / "prompts-with-gold.jsonl", problems)
    write_gold(demo.heldout_file, demo.task.heldout_problems(demo.heldout))


def configure(demo: Demo, method: str, prompts: Path | None = None) -> RunConfig:
    """The demo's configuration with its paths. For another method than the file's, that method's defaults apply."""
    base = load_run_config(demo.task.config, dict(demo.overrides))
    settings = base.method if method == base.method.name else parse_settings({"name": method})
    built = build(settings)
    training_file = prompts or demo.out / ("prompts-with-gold.jsonl" if built.reads_gold else "prompts.jsonl")
    overrides: dict[str, object] = {
        **dict(demo.overrides),
        "run_dir": str(demo.out / method / "train"),
        "reference": str(demo.reference),
        "reference_n": ROLLOUTS,
        "steps": demo.task.steps,
        "openrlhf.train.num_episodes": demo.task.steps,
        "openrlhf.actor.model_name_or_path": str(demo.task.model),
        "openrlhf.data.prompt_dataset": str(training_file),
        **({} if prompts else {**EVALUATION, "openrlhf.eval.dataset": str(demo.heldout_file)}),
    }
    if method != base.method.name:
        overrides["method"] = {"name": method}
    config = load_run_config(demo.task.config, overrides)
    return config if built.needs_reference else config.model_copy(update={"reference": None})


def sample(model: Path, config: RunConfig, prompts: Path, out: Path, seed: int) -> None:
    """Rollouts of a model by `restrain reference`, in another process; existing rollouts are kept."""
    sample_reference(config, out, n=ROLLOUTS, model=str(model), prompts=str(prompts), seed=seed)


class _RealRow(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str | int
    problem: str


def train_on_real_prompts(demo: Demo, source: Path, listener: DemoListener) -> list[RunFolder]:
    """Offline pass and training steps of each method on a file's first prompts, for a test of every part on real text.

    Its answers are not read. Raises DataError for a damaged file or one with too few prompts.
    """
    rows, count = read_rows(source, _RealRow), demo.task.steps * REAL_PROMPTS_PER_STEP
    if len(rows) < count:
        raise DataError(
            f"{source}: {len(rows)} prompts; these steps need {count}. Lower --steps, or give more prompts."
        )
    prompts, runs = demo.out / "prompts.jsonl", []
    write_rows(prompts, (PromptOnly(id=str(row.id), problem=row.problem) for row in rows[:count]))
    for method in demo.task.methods:
        config = configure(demo, method, prompts)
        rollouts = REAL_PROMPTS_PER_STEP * int(config.openrlhf["rollout.n_samples_per_prompt"])
        flags = {**config.openrlhf, **REAL_SIZES, "train.batch_size": rollouts}
        config = config.model_copy(update={"openrlhf": flags})
        if config.reference:
            listener.phase(f"{method}: offline pass")
            sample(demo.task.model, config, prompts, config.reference, REFERENCE_SEED)
        listener.phase(f"{method}: training")
        runs.append(train(config, listener.step))
    return runs
