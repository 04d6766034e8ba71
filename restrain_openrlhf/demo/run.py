"""The demo: task, offline pass, training, evaluation before and after, report."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.data.gold_split import SupervisedRow
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.data.jsonl import read_rows
from restrain_openrlhf.demo.report import write_report
from restrain_openrlhf.demo.task import heldout_problems, training_problems, write_gold, write_prompts
from restrain_openrlhf.evaluation.result import Accuracy, accuracy
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.run.metrics import StepRow
from restrain_openrlhf.run.reference_pass import sample_reference
from restrain_openrlhf.run.train import train
from restrain_openrlhf.shipped import CONFIGS

CONFIG = CONFIGS / "cpu" / "demo.yaml"
MODEL = Path(__file__).parent / "model"
ROLLOUTS = 16
EVALUATION_SEED = 7


@dataclass(frozen=True)
class Demo:
    """What the user chose. `out` holds everything the demo writes; methods share prompts and the reference."""

    out: Path
    method: str
    steps: int
    heldout: int = 200
    config: Path = CONFIG
    overrides: tuple[tuple[str, object], ...] = ()

    @property
    def folder(self) -> Path:
        """This method's part of the demo's folder."""
        return self.out / self.method


@dataclass(frozen=True)
class Listener:
    """Callbacks of the demo: a phase began, a training step ended."""

    phase: Callable[[str], None] = lambda _name: None
    step: Callable[[StepRow, int], None] = lambda _row, _total: None


@dataclass(frozen=True)
class Outcome:
    """Held-out accuracy before and after training, and the report."""

    before: Accuracy
    after: Accuracy
    report: Path
    model: Path


def run_demo(demo: Demo, listener: Listener) -> Outcome:
    """Run the demo, or resume it. Raises a RestrainError with the log's last lines if a part fails."""
    demo.folder.mkdir(parents=True, exist_ok=True)
    config = write_task(demo)
    method = build(config.method)
    if method.needs_reference:
        listener.phase("offline pass: the frozen model votes on every prompt")
        sample(MODEL, config, demo.out / "prompts.jsonl", config.reference or demo.out / "reference.jsonl", seed=42)
    listener.phase("held-out accuracy before")
    before = evaluate(demo, config, MODEL, demo.out / "before.jsonl")
    listener.phase("training")
    run = train(config, listener.step)
    listener.phase("held-out accuracy after")
    after = evaluate(demo, config, run.model, demo.folder / "after.jsonl")
    report = write_report(demo.folder, demo.method, run.path, before, after)
    return Outcome(before, after, report, run.model)


def write_task(demo: Demo) -> RunConfig:
    """The task's files and the run's configuration. Only a method that reads gold gets prompts with it."""
    settings = load_run_config(demo.config).openrlhf
    problems = training_problems(demo.steps * int(settings["rollout.batch_size"]))
    write_prompts(demo.out / "prompts.jsonl", problems)
    write_gold(demo.out / "heldout.jsonl", heldout_problems(demo.heldout))
    gold = build(parse_settings({"name": demo.method})).reads_gold
    if gold:
        write_gold(demo.folder / "prompts-with-gold.jsonl", problems)
    return configure(demo, demo.folder / "prompts-with-gold.jsonl" if gold else demo.out / "prompts.jsonl")


def configure(demo: Demo, prompts: Path) -> RunConfig:
    """The demo's configuration with its paths. For another method than the file's, that method's defaults apply."""
    base = load_run_config(demo.config, dict(demo.overrides))
    overrides: dict[str, object] = {
        **dict(demo.overrides),
        "run_dir": str(demo.folder / "train"),
        "reference": str(demo.out / "reference.jsonl"),
        "openrlhf.actor.model_name_or_path": str(MODEL),
        "openrlhf.data.prompt_dataset": str(prompts),
    }
    if demo.method != base.method.name:
        overrides["method"] = {"name": demo.method}
    config = load_run_config(demo.config, overrides)
    method = build(config.method)
    updates: dict[str, object] = {} if method.needs_reference else {"reference": None}
    if method.reads_gold:
        updates["openrlhf"] = {**config.openrlhf, "data.label_key": "answer"}
    return config.model_copy(update=updates)


def evaluate(demo: Demo, config: RunConfig, model: Path, rollouts: Path) -> Accuracy:
    """Accuracy of `model` on the held-out problems, sampled in another process."""
    heldout = demo.out / "heldout.jsonl"
    sample(model, config, heldout, rollouts, seed=EVALUATION_SEED)
    gold = {text_hash(row.problem): row.answer for row in read_rows(heldout, SupervisedRow)}
    return accuracy(load_reference(rollouts).rows, gold)


def sample(model: Path, config: RunConfig, prompts: Path, out: Path, seed: int) -> None:
    """Rollouts of a model by `restrain reference`; existing rollouts are kept."""
    sample_reference(config, out, n=ROLLOUTS, model=str(model), prompts=str(prompts), seed=seed)
