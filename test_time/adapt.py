"""Adapts a model to a file of problems: offline pass, training, final vote; a killed run goes on."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.run.metrics import StepRow
from restrain_openrlhf.run.reference_pass import sample_reference
from restrain_openrlhf.run.train import train
from test_time.comparison import Comparison, compare, read_gold
from test_time.predictions import Prediction, predictions
from test_time.report import write_report


@dataclass(frozen=True)
class Adaptation:
    """What a user chose: `config` gives the method and OpenRLHF's flags, `votes` the rollouts of each vote.

    `gold` is read after everything else is done, and by nothing but the comparison.
    """

    model: str
    prompts: Path
    out: Path
    config: Path
    votes: int = 16
    overrides: tuple[tuple[str, object], ...] = ()
    gold: Path | None = None


@dataclass(frozen=True)
class Outcome:
    """The answers and the page that shows them; `comparison` where gold was given."""

    path: Path
    rows: list[Prediction]
    comparison: Comparison | None
    report: Path
    model: Path


def adapt(job: Adaptation, on_phase: Callable[[str], None], on_step: Callable[[StepRow, int], None]) -> Outcome:
    """Adapt the model, or go on where it was stopped; the adapted model is `out/train/model`.

    Raises a RestrainError for bad input before anything heavy starts, RunError with the log's end if a part fails.
    """
    if job.gold is not None:
        read_gold(job.gold)
    job.out.mkdir(parents=True, exist_ok=True)
    config = configure(job)
    before, after, path = job.out / "before.jsonl", job.out / "after.jsonl", job.out / "predictions.jsonl"
    on_phase("the base model votes")
    vote(job, config, job.model, before)
    on_phase("starting Ray and vLLM")
    run = train(config, on_step)
    on_phase("the adapted model votes")
    vote(job, config, str(run.model), after)
    base, adapted = load_reference(before), load_reference(after)
    rows = predictions(base, adapted)
    write_rows(path, rows)
    comparison = compare(base.rows, adapted.rows, read_gold(job.gold)) if job.gold else None
    if comparison is not None:
        write_rows(job.out / "comparison.jsonl", [comparison])
    report = write_report(job.out, config.run_dir, rows, comparison)
    return Outcome(path, rows, comparison, report, run.model)


def configure(job: Adaptation) -> RunConfig:
    """The configuration with this job's model, prompts and folder; every prompt is trained on."""
    overrides: dict[str, object] = {
        **dict(job.overrides),
        "run_dir": str(job.out / "train"),
        "reference": str(job.out / "before.jsonl"),
        "openrlhf.actor.model_name_or_path": job.model,
        "openrlhf.data.prompt_dataset": str(job.prompts),
    }
    return load_run_config(job.config, overrides)


def vote(job: Adaptation, config: RunConfig, model: str, out: Path) -> None:
    """One vote per problem, sampled as in training, in a process of its own."""
    sample_reference(config, out, n=job.votes, model=model)
