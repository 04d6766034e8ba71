"""The demo: task, offline pass, training by each method, evaluation before and after, report."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.data.gold_split import SupervisedRow
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.data.jsonl import read_rows
from restrain_openrlhf.demo.problems import write_gold, write_prompts
from restrain_openrlhf.demo.report import MethodResult, write_report
from restrain_openrlhf.demo.tasks import PREMISE, Task
from restrain_openrlhf.evaluation.result import accuracy
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.run.metrics import StepRow
from restrain_openrlhf.run.reference_pass import sample_reference
from restrain_openrlhf.run.train import train

ROLLOUTS = 16
EVALUATION_SEED = 7


@dataclass(frozen=True)
class Demo:
    """What the user chose. `out` holds everything the demo writes; its methods share prompts and the offline pass.

    `methods`, `steps` and `config`: None for the task's own.
    """

    out: Path
    task: Task = PREMISE
    chosen_methods: tuple[str, ...] | None = None
    chosen_steps: int | None = None
    heldout: int = 200
    chosen_config: Path | None = None
    overrides: tuple[tuple[str, object], ...] = ()

    @property
    def methods(self) -> tuple[str, ...]:
        """In the order in which they train."""
        return self.chosen_methods or self.task.methods

    @property
    def steps(self) -> int:
        """Training steps of each method."""
        return self.chosen_steps or self.task.steps

    @property
    def config(self) -> Path:
        """The configuration that the methods share."""
        return self.chosen_config or self.task.config

    def folder(self, method: str) -> Path:
        """A method's part of the demo's folder."""
        return self.out / method


@dataclass(frozen=True)
class Listener:
    """Callbacks of the demo: a phase of a method began, a training step ended."""

    phase: Callable[[str], None] = lambda _name: None
    step: Callable[[StepRow, int], None] = lambda _row, _total: None


@dataclass(frozen=True)
class Outcome:
    """Each method's result, in the order of training, and the report of all that are in the folder."""

    results: tuple[MethodResult, ...]
    report: Path


def run_demo(demo: Demo, listener: Listener) -> Outcome:
    """Run the demo, or resume it. Raises a RestrainError with the log's last lines if a part fails."""
    for method in demo.methods:
        configure(demo, method)
    write_task(demo)
    results = tuple(run_method(demo, method, listener) for method in demo.methods)
    return Outcome(results, write_report(demo.out, demo.task))


def run_method(demo: Demo, method: str, listener: Listener) -> MethodResult:
    """Sample what is not there yet of the base model, train, and evaluate; the result is written into its folder."""
    demo.folder(method).mkdir(parents=True, exist_ok=True)
    config = configure(demo, method)
    listener.phase(f"{method}: the frozen model votes on every prompt")
    sample(demo.task.model, config, demo.out / "prompts.jsonl", demo.out / "reference.jsonl", seed=42)
    listener.phase(f"{method}: held-out accuracy before")
    evaluate(demo, config, demo.task.model, demo.out / "before.jsonl")
    listener.phase(f"{method}: training")
    run = train(config, listener.step)
    listener.phase(f"{method}: held-out accuracy after")
    evaluate(demo, config, run.model, demo.folder(method) / "after.jsonl")
    gold = gold_of(demo.out / "heldout.jsonl")
    before, after = (
        accuracy(load_reference(path).rows, gold)
        for path in (demo.out / "before.jsonl", demo.folder(method) / "after.jsonl")
    )
    result = MethodResult(method, before, after)
    result.write(demo.folder(method))
    return result


def write_task(demo: Demo) -> None:
    """The task's files. The answers are in files that only a method that reads gold, and the report, are given."""
    batch = int(load_run_config(demo.config).openrlhf["rollout.batch_size"])
    problems = demo.task.training_set(demo.steps * batch)
    write_prompts(demo.out / "prompts.jsonl", problems)
    write_gold(demo.out / "prompts-with-gold.jsonl", problems)
    write_gold(demo.out / "heldout.jsonl", demo.task.heldout_problems(demo.heldout))


def configure(demo: Demo, method: str, prompts: Path | None = None) -> RunConfig:
    """The demo's configuration with its paths. For another method than the file's, that method's defaults apply."""
    base = load_run_config(demo.config, dict(demo.overrides))
    settings = base.method if method == base.method.name else parse_settings({"name": method})
    reads_gold = build(settings).reads_gold
    training_file = prompts or demo.out / ("prompts-with-gold.jsonl" if reads_gold else "prompts.jsonl")
    overrides: dict[str, object] = {
        **dict(demo.overrides),
        "run_dir": str(demo.folder(method) / "train"),
        "reference": str(demo.out / "reference.jsonl"),
        "reference_n": ROLLOUTS,
        "steps": demo.steps,
        "openrlhf.train.num_episodes": demo.steps,
        "openrlhf.actor.model_name_or_path": str(demo.task.model),
        "openrlhf.data.prompt_dataset": str(training_file),
        **({} if prompts else evaluation(demo.out / "heldout.jsonl")),
    }
    if method != base.method.name:
        overrides["method"] = {"name": method}
    config = load_run_config(demo.config, overrides)
    updates: dict[str, object] = {} if build(settings).needs_reference else {"reference": None}
    return config.model_copy(update=updates)


def evaluation(heldout: Path) -> dict[str, object]:
    """The host evaluates the held-out problems before training and every few steps."""
    return {
        "evaluate_first": True,
        "openrlhf.eval.dataset": str(heldout),
        "openrlhf.data.label_key": "answer",
        "openrlhf.eval.steps": 5,
        "openrlhf.eval.temperature": 1.0,
        "openrlhf.eval.n_samples_per_prompt": 8,
    }


def evaluate(demo: Demo, config: RunConfig, model: Path, rollouts: Path) -> None:
    """Rollouts of `model` on the held-out problems, sampled in another process."""
    sample(model, config, demo.out / "heldout.jsonl", rollouts, seed=EVALUATION_SEED)


def gold_of(path: Path) -> dict[str, str]:
    """Answers by the hash of the problem."""
    return {text_hash(row.problem): row.answer for row in read_rows(path, SupervisedRow)}


def sample(model: Path, config: RunConfig, prompts: Path, out: Path, seed: int) -> None:
    """Rollouts of a model by `restrain reference`; existing rollouts are kept."""
    sample_reference(config, out, n=ROLLOUTS, model=str(model), prompts=str(prompts), seed=seed)
