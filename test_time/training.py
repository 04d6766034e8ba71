"""Training on the test set's prompts: stop rules after each step; the last good and the best model are kept."""

import math
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.answers import classes
from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.metrics import KL, StepRow, read_steps
from restrain_openrlhf.reference import Reference
from restrain_openrlhf.scoring.vote_statistics import top_answer_share
from restrain_openrlhf.training.train import train
from test_time.stopping import Alarm, StopRules, alarm, unwatched

# Steps that a checkpoint's signal is averaged over, and how much a nat of KL counts against agreement (ours,
# docs/journeys/adapt.md: measured on the study's runs).
WINDOW = 3
KL_COST = 3.0


@dataclass(frozen=True)
class SavedModel:
    """The policy after `step` steps, a Hugging Face folder."""

    step: int
    path: Path


@dataclass(frozen=True)
class Trained:
    """How training went. `chosen` is the last good model, `best` the best by signals without gold.

    Both are None where no model was saved before the alarm; the base model's answers are used then. An alarm in the
    last steps does not end a run early. `unwatched`: signals that the host did not log, so that their rules were off.
    """

    steps: int
    alarm: Alarm | None
    ended_early: bool
    chosen: SavedModel | None
    best: SavedModel | None
    unwatched: tuple[str, ...]


def train_watched(
    config: RunConfig, rules: StopRules | None, before: Reference, on_step: Callable[[StepRow, int], None]
) -> Trained:
    """Train, or resume; `before` are the base model's votes.

    Raises ConfigError where stop rules have ended the run, and there are none now.
    """
    base_share = top_answer_share(classes([row.majority for row in before.rows]))

    def find_alarm(rows: Sequence[StepRow]) -> Alarm | None:
        return alarm(rows, base_share, rules) if rules else None

    def should_stop(rows: Sequence[StepRow]) -> str | None:
        found = find_alarm(rows)
        prune(RunFolder(config.run_dir), rows, found)
        return str(found) if found else None

    run = train(config, on_step, should_stop)
    completion = run.completion()
    assert completion is not None, "train returns completed runs"
    if completion.stopped is not None and rules is None:
        raise ConfigError(
            f"{run.path}: the rules ended this run after {completion.steps} steps ({completion.stopped}), and "
            "--no-stop cannot take that back. Choose another --out."
        )
    rows = read_steps(run.metrics)
    found = find_alarm(rows)
    prune(run, rows, found)
    models = saved_models(run, rows)
    missing = tuple(unwatched(rows)) if rules else ()
    chosen, highest = last_good(models, rows, found), best(models, rows, found)
    return Trained(len(rows), found, completion.stopped is not None, chosen, highest, missing)


def saved_models(folder: RunFolder, rows: Sequence[StepRow]) -> list[SavedModel]:
    """Complete ones, in order of steps: those of ckpt.save_hf, and the last one if training has ended.

    global_step<N>_hf has this name once it is whole (hook/fixes/checkpoints.py, save_model); it counts when the metrics
    have a later step, as the step that saves may still be repeated.
    """
    last = max((row.step for row in rows), default=0)
    found = [
        SavedModel(int(match[1]), path)
        for path in folder.checkpoints.glob("global_step*_hf")
        if (match := re.fullmatch(r"global_step(\d+)_hf", path.name)) and int(match[1]) < last
    ]
    completion = folder.completion()
    ended = [SavedModel(last, folder.model)] if completion is not None and completion.stopped is None else []
    return sorted([*found, *ended], key=lambda model: model.step)


def last_good(models: Sequence[SavedModel], rows: Sequence[StepRow], alarm: Alarm | None) -> SavedModel | None:
    """The newest saved before the alarm's first step; None where there is none: the base model is used then."""
    return max(_good(models, rows, alarm), key=lambda model: model.step, default=None)


def _good(models: Sequence[SavedModel], rows: Sequence[StepRow], alarm: Alarm | None) -> list[SavedModel]:
    """Those from before the alarm; never one whose step, or the next, which begins from it, has no finite numbers."""
    broken = {row.step for row in rows if row.broken}
    before = [model for model in models if alarm is None or model.step <= alarm.trusted_until]
    return [model for model in before if broken.isdisjoint((model.step, model.step + 1))]


def best(models: Sequence[SavedModel], rows: Sequence[StepRow], alarm: Alarm | None) -> SavedModel | None:
    """The one with the highest `agreement_without_drift`, of those from before the alarm."""
    worth = {model: agreement_without_drift(rows, model.step) for model in _good(models, rows, alarm)}
    measured = [model for model, value in worth.items() if not math.isnan(value)]
    return max(measured, key=lambda model: (worth[model], model.step), default=None)


def agreement_without_drift(rows: Sequence[StepRow], step: int) -> float:
    """Mean majority share minus three times the mean KL to the base model, over the last steps up to `step`.

    Agreement alone is highest in a collapsed policy. Without gold, the KL tells a collapsed policy from one that
    learned. A step without KL counts as 0; NaN where the KL was not finite.
    """
    window = [row for row in rows if row.step <= step][-WINDOW:]
    agreement = sum(float(row.votes["majority_share_mean"]) for row in window) / len(window)
    drift = sum(row.numbers.get(KL, 0.0) for row in window) / len(window)
    return agreement - KL_COST * drift


def prune(folder: RunFolder, rows: Sequence[StepRow], alarm: Alarm | None) -> None:
    """Delete saved models that are neither newest, nor last good, nor best so far: they are large."""
    models = saved_models(folder, rows)
    kept = {model.path for model in (*models[-1:], last_good(models, rows, alarm), best(models, rows, alarm)) if model}
    for model in models:
        if model.path not in kept:
            shutil.rmtree(model.path)
