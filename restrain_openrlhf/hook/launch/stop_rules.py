"""Judges a run by signals that need no gold: when it should end, and which of its saved models is the last good one.

The size of the majority is not one of the signals.
"""

import math
import re
import shutil
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.config.yaml_file import RunConfig, StopRules
from restrain_openrlhf.records.folder import Completion, LabelledChoice, RunFolder
from restrain_openrlhf.records.metrics import (
    ENTROPY,
    GRADIENT_NORM,
    KL,
    LOSS,
    HeldOutAccuracy,
    StepRow,
    each_step,
    read_held_out,
)
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.scoring.vote_statistics import top_answer_share

# Among fewer prompts, several may well have the same answer.
FEWEST_PROMPTS = 5
# What a signal was at the start is its mean over these steps.
FIRST_STEPS = 3


@dataclass(frozen=True)
class Alarm:
    """A limit that was passed from step `since` to step `step`, where the signal had this `value`.

    A value that is not finite, which is NaN here, fires at once.
    """

    rule: str
    since: int
    step: int
    value: float
    limit: float

    def __str__(self) -> str:
        if math.isnan(self.value):
            return f"{SIGNALS[self.rule]} was no finite number at step {self.step}"
        return (
            f"{SIGNALS[self.rule]} passed its limit from step {self.since} to step {self.step} "
            f"({self.value:.3g}, limit {self.limit:.3g})"
        )

    @property
    def trusted_until(self) -> int:
        """The last step whose model is not affected by the alarm.

        The numbers of a step begin with the policy that the step before it has left. If they are not finite at once,
        that policy may already be broken.
        """
        return self.since - (2 if math.isnan(self.value) and self.since == self.step else 1)


SIGNALS = {
    "kl": "the KL to the base model",
    "template": "the share of prompts with the same majority answer",
    "entropy": "the policy's entropy",
    "loss": "the policy loss",
    "gradient": "the gradient's norm",
}
# Signals that are numbers of the policy. Whatever the rules are, each of these numbers must be finite.
NUMBERS = {"kl": KL, "entropy": ENTROPY, "loss": LOSS, "gradient": GRADIENT_NORM}


def alarm(rows: Sequence[StepRow], base_share: float | None, rules: StopRules) -> Alarm | None:
    """The first alarm, in order of steps, or None. `base_share` is as in Watch."""
    limits = _limits(rows, base_share, rules)
    streaks = [_first_streak(name, limit, rows, rules.patience) for name, limit in limits.items()]
    found = [one for one in (*streaks, _first_broken(rows)) if one is not None]
    return min(found, key=lambda one: (one.step, one.since), default=None)


def unwatched(rows: Sequence[StepRow]) -> list[str]:
    """Signals that no step has logged, in words. Their rules could not fire."""
    return [SIGNALS[name] for name in ("kl", "template", "entropy") if all(_value(name, row) is None for row in rows)]


def _value(name: str, row: StepRow) -> float | None:
    if name == "template":
        return float(row.votes["top_answer_share"]) if row.votes["prompts"] >= FEWEST_PROMPTS else None
    return row.numbers.get(NUMBERS[name])


def _limits(rows: Sequence[StepRow], base_share: float | None, rules: StopRules) -> dict[str, float]:
    """The limits by rule. A rule that needs the first steps has no limit until each of them has logged its signal."""
    entropy = _at_first("entropy", rows)
    share = _at_first("template", rows) if base_share is None else base_share
    limits = {
        "kl": rules.kl,
        "template": None if share is None else share + rules.template,
        "entropy": None if entropy is None else entropy * rules.entropy,
    }
    return {name: limit for name, limit in limits.items() if limit is not None}


def _at_first(name: str, rows: Sequence[StepRow]) -> float | None:
    """The mean of a signal over the first steps; None where one of them has not logged it as a finite number."""
    values = [_value(name, row) for row in rows[:FIRST_STEPS]]
    found = [value for value in values if value is not None and not math.isnan(value)]
    return sum(found) / FIRST_STEPS if len(found) == FIRST_STEPS else None


def _first_broken(rows: Sequence[StepRow]) -> Alarm | None:
    row = next((row for row in rows if row.broken), None)
    names = {number: name for name, number in NUMBERS.items()}
    return Alarm(names[row.broken[0]], row.step, row.step, math.nan, math.nan) if row else None


def _first_streak(name: str, limit: float, rows: Sequence[StepRow], patience: int) -> Alarm | None:
    since = None
    for place, row in enumerate(rows):
        value = _value(name, row)
        # Nothing compares with a number that is not finite (NaN here), so such a value passes every limit.
        if value is None or (value >= limit if name == "entropy" else value <= limit):
            since = None
            continue
        since = place if since is None else since
        if place - since + 1 == patience:
            return Alarm(name, rows[since].step, row.step, value, limit)
    return None


@dataclass(frozen=True)
class Watch:
    """The stop rules over a run.

    `base_share` is the share of prompts with the frozen model's most common majority answer; None where no reference
    says it, and then the first steps do.
    """

    folder: RunFolder
    rules: StopRules
    base_share: float | None

    @classmethod
    def of(cls, config: RunConfig, rules: StopRules) -> "Watch":
        share, reference = None, config.reference
        if reference is not None and reference.exists():
            votes = load_reference(reference).rows
            share = top_answer_share(config.answers.alike([row.majority_key for row in votes]))
        return cls(RunFolder(config.run_dir), rules, share)

    def should_stop(self, rows: Sequence[StepRow]) -> str | None:
        """Why the run should end after these steps, or None. Deletes models that are no longer needed."""
        found = alarm(rows, self.base_share, self.rules)
        prune(self.folder, rows, found, 0 if found else self.rules.patience)
        return str(found) if found and self.rules.ends else None

    def judged(self, completion: Completion, rows: Sequence[StepRow], base_model: str) -> Completion:
        """How the run has ended, with the alarm and the last good model; deletes all others but the newest.

        Where an alarm does not end a run, models are good in spite of it.
        """
        found = alarm(rows, self.base_share, self.rules)
        counts = found if self.rules.ends else None
        models = saved_models(self.folder, rows, completion)
        prune(self.folder, rows, counts, completion=completion)
        step = last_good(models, rows, counts)
        return completion.model_copy(
            update={
                "alarm": str(found) if found else None,
                "unwatched": tuple(unwatched(rows)),
                "chosen_step": step,
                "chosen_model": str(models[step]) if step else base_model,
            }
        )


def saved_models(folder: RunFolder, rows: Sequence[StepRow], completion: Completion | None = None) -> dict[int, Path]:
    """The folders of complete models by step: those of ckpt.save_hf, and the final one if training reached its end.

    A folder is called global_step<N>_hf once it is whole (hook/fixes/checkpoints.py, save_model). It counts once the
    metrics have a later step, because a resumed run may repeat the step that has saved it.
    """
    last = max((row.step for row in rows), default=0)
    named = ((re.fullmatch(r"global_step(\d+)_hf", path.name), path) for path in folder.checkpoints.glob("*_hf"))
    found = {int(match[1]): path for match, path in named if match and int(match[1]) < last}
    if completion is not None and completion.stopped is None:
        found[last] = folder.model
    return dict(sorted(found.items()))


def best_by_labels(folder: RunFolder, models: Collection[int]) -> HeldOutAccuracy | None:
    """Of the models of these steps, the best in the run's evaluations; None if none of them was evaluated."""
    evaluated = [row for row in read_held_out(folder.path) if row.step in models]
    return max(evaluated, key=lambda row: (row.pass_at_1, -row.step), default=None)


def with_labels(folder: RunFolder, completion: Completion, base_model: str) -> Completion:
    """How the run has ended, with what its evaluations say of its saved models and of the base model."""
    models = {0: base_model, **saved_models(folder, list(deque(each_step(folder.metrics), maxlen=1)), completion)}
    if (best := best_by_labels(folder, models)) is None:
        return completion
    choice = LabelledChoice(
        step=best.step, model=str(models[best.step]), pass_at_1=best.pass_at_1, interval=best.interval
    )
    return completion.model_copy(update={"by_labels": choice})


def last_good(steps: Collection[int], rows: Sequence[StepRow], alarm: Alarm | None) -> int:
    """The last of the saved models' `steps` before the alarm; 0 where there is none.

    A model is not good if the numbers of its step or of the next step, which begins with it, are not finite.
    """
    broken = {row.step for row in rows if row.broken}
    before = [step for step in steps if alarm is None or step <= alarm.trusted_until]
    return max((step for step in before if broken.isdisjoint((step, step + 1))), default=0)


def prune(
    folder: RunFolder,
    rows: Sequence[StepRow],
    alarm: Alarm | None,
    patience: int = 0,
    completion: Completion | None = None,
) -> None:
    """Delete saved models, which are large, but for the newest, the last good one, those that may become it, and the
    best by labels.

    A limit that was passed in each of the last `patience` steps may raise an alarm at the next, and then the last good
    model is from before these steps.
    """
    models, last = saved_models(folder, rows, completion), max((row.step for row in rows), default=0)
    kept = {
        max(models, default=0),
        last_good(models, rows, alarm),
        *(step for step in models if step > last - patience),
    }
    kept.add(last_good([step for step in models if step <= last - patience], rows, alarm))
    best = best_by_labels(folder, models)
    for step, path in models.items():
        if step not in kept and (best is None or step != best.step):
            shutil.rmtree(path)
