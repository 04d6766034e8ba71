"""Models saved during training: which are complete, which is the last good one, which is best without gold."""

import math
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.model_files import refuse_incomplete
from restrain_openrlhf.run.folder import RunFolder
from restrain_openrlhf.run.metrics import KL, StepRow
from test_time.stopping import Alarm

# Steps that a checkpoint's signal is averaged over, and how much a nat of KL counts against agreement (ours,
# docs/journeys/adapt.md: measured on the study's runs).
WINDOW = 3
KL_COST = 3.0
VOCABULARIES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")


@dataclass(frozen=True)
class SavedModel:
    """The policy after `step` steps, a Hugging Face folder."""

    step: int
    path: Path


def saved_models(folder: RunFolder, rows: Sequence[StepRow]) -> list[SavedModel]:
    """Complete ones, in order of steps: those of ckpt.save_hf, and the last one if training has ended.

    global_step<N>_hf has this name once it is whole (hook/checkpoints.py, save_model). Runs of earlier versions may
    have unfinished ones of this name: their files are looked at, and a later step must be in the metrics.
    """
    last = max((row.step for row in rows), default=0)
    found = [
        SavedModel(int(match[1]), path)
        for path in folder.checkpoints.glob("global_step*_hf")
        if (match := re.fullmatch(r"global_step(\d+)_hf", path.name)) and int(match[1]) < last and _is_whole(path)
    ]
    completion = folder.completion()
    ended = [SavedModel(last, folder.model)] if completion is not None and completion.stopped is None else []
    return sorted([*found, *ended], key=lambda model: model.step)


def _is_whole(folder: Path) -> bool:
    """The host writes the tokenizer after the weights, its words last (utils/deepspeed/deepspeed.py, save_model)."""
    try:
        refuse_incomplete(folder)
    except ConfigError:
        return False
    return any((folder / name).exists() for name in VOCABULARIES)


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
