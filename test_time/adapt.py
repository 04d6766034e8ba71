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
from test_time.predictions import Prediction, predictions


@dataclass(frozen=True)
class Adaptation:
    """What a user chose: `config` gives the method and OpenRLHF's flags, `votes` the rollouts of each vote."""

    model: str
    prompts: Path
    out: Path
    config: Path
    votes: int = 16
    overrides: tuple[tuple[str, object], ...] = ()


def adapt(
    job: Adaptation, on_phase: Callable[[str], None], on_step: Callable[[StepRow, int], None]
) -> tuple[Path, list[Prediction]]:
    """Returns the path of predictions.jsonl and its rows; the adapted model is `out/train/model`.

    Raises a RestrainError for bad input before anything heavy starts, RunError with the log's end if a part fails.
    """
    job.out.mkdir(parents=True, exist_ok=True)
    config = configure(job)
    before, after, path = job.out / "before.jsonl", job.out / "after.jsonl", job.out / "predictions.jsonl"
    on_phase("the base model votes")
    vote(job, config, job.model, before)
    on_phase("starting Ray and vLLM")
    run = train(config, on_step)
    on_phase("the adapted model votes")
    vote(job, config, str(run.model), after)
    rows = predictions(load_reference(before), load_reference(after))
    write_rows(path, rows)
    return path, rows


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
