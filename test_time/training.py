"""Trains on the test set's prompts, ends a run early by signals that need no gold, and keeps the last good model.

The size of the majority is not one of the signals.
"""

import math
import re
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, Field

from restrain_openrlhf.config.documents import typed
from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.hook.launch.progress import OnStep
from restrain_openrlhf.hook.launch.train import train
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.metrics import (
    ENTROPY,
    GRADIENT_NORM,
    KL,
    LOSS,
    StepRow,
    read_steps,
)
from restrain_openrlhf.reference import Reference
from restrain_openrlhf.scoring.vote_statistics import top_answer_share

# Among fewer prompts, several may well have the same answer.
FEWEST_PROMPTS = 5
# The mean entropy of these steps is the starting entropy.
FIRST_STEPS = 3


class StopRules(BaseModel, frozen=True, extra="forbid"):
    """The limits. A rule fires when its limit is passed in `patience` steps in a row (docs/journeys/adapt.md).

    `kl` limits the mean KL to the base model over the tokens trained on, in nats (`restrain/kl`). `template` limits by
    how much the share of prompts with the most common majority answer exceeds the base model's. `entropy` is the lowest
    policy entropy, as a share of that in the first steps.
    """

    kl: float = Field(0.15, gt=0)
    template: float = Field(0.4, gt=0)
    entropy: float = Field(0.1, gt=0, lt=1)
    patience: int = Field(2, ge=1)


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
        """The alarm in one sentence."""
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


def alarm(rows: Sequence[StepRow], top_answer_share: float, rules: StopRules) -> Alarm | None:
    """The first alarm, in order of steps, or None. `top_answer_share` is that of the base model."""
    limits = _limits(rows, top_answer_share, rules)
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


def _limits(rows: Sequence[StepRow], top_answer_share: float, rules: StopRules) -> dict[str, float]:
    """The limits by rule. There is none for the entropy until the first steps have logged it."""
    logged = [row.numbers[ENTROPY] for row in rows[:FIRST_STEPS] if ENTROPY in row.numbers]
    first = [value for value in logged if not math.isnan(value)]
    entropy = {"entropy": sum(first) / FIRST_STEPS * rules.entropy} if len(first) == FIRST_STEPS else {}
    return {"kl": rules.kl, "template": top_answer_share + rules.template, **entropy}


def _first_broken(rows: Sequence[StepRow]) -> Alarm | None:
    row = next((row for row in rows if row.broken), None)
    names = {number: name for name, number in NUMBERS.items()}
    return Alarm(names[row.broken[0]], row.step, row.step, math.nan, math.nan) if row else None


def _first_streak(name: str, limit: float, rows: Sequence[StepRow], patience: int) -> Alarm | None:
    since = None
    for place, row in enumerate(rows):
        value = _value(name, row)
        if value is None or not _passes(name, limit, row):
            since = None
            continue
        since = place if since is None else since
        if place - since + 1 == patience:
            return Alarm(name, rows[since].step, row.step, value, limit)
    return None


def _passes(name: str, limit: float, row: StepRow) -> bool:
    """Whether a step has a value beyond the rule's limit, or one that is not finite."""
    value = _value(name, row)
    if value is None:
        return False
    return math.isnan(value) or (value < limit if name == "entropy" else value > limit)


def parse_stop_rules(items: Sequence[str]) -> StopRules:
    """The rules with items such as `kl=0.2` on top of the defaults. Raises ConfigError for a wrong name or value."""
    pairs = [item.partition("=") for item in items]
    return typed(StopRules, {name: value for name, _, value in pairs}, "--stop")


class Trained(BaseModel, frozen=True):
    """How training went. `chosen_model` is the last good model, of step `chosen_step`.

    `chosen_step` 0 means the base model, because no model was saved before the alarm. `alarm` says which rule fired; an
    alarm in the last steps does not end the run early. `unwatched` names signals that the host did not log, so that
    their rules had no effect.
    """

    steps: int
    alarm: str | None
    ended_early: bool
    unwatched: tuple[str, ...]
    chosen_step: int
    chosen_model: str

    @property
    def ending(self) -> str | None:
        """Which rule fired, and which model answers; None if no rule did."""
        if self.alarm is None:
            return None
        stands = f"the model of step {self.chosen_step}" if self.chosen_step else "the base model"
        ended = "A stop rule ended training early" if self.ended_early else "A stop rule fired in the last steps"
        return f"{ended}: {self.alarm}; the answers are those of {stands}."


@dataclass(frozen=True)
class Watch:
    """Stop rules over a run, with the base model's share of the most common answer; without `rules`, no rule fires."""

    folder: RunFolder
    rules: StopRules | None
    base_share: float

    def alarm(self, rows: Sequence[StepRow]) -> Alarm | None:
        """The first alarm in these steps."""
        return alarm(rows, self.base_share, self.rules) if self.rules else None

    def should_stop(self, rows: Sequence[StepRow]) -> str | None:
        """Why the run should end after these steps, or None. Deletes models that are no longer needed."""
        found = self.alarm(rows)
        prune(self.folder, rows, found, self.rules.patience if self.rules and not found else 0)
        return str(found) if found else None


def train_watched(config: RunConfig, rules: StopRules | None, before: Reference, on_step: OnStep) -> Trained:
    """Train, or resume training; `before` has the base model's votes.

    Raises ConfigError if stop rules have ended the run earlier, and there are no `rules` now.
    """
    base_share = top_answer_share(config.answers.alike([row.majority_key for row in before.rows]))
    watch = Watch(RunFolder(config.run_dir), rules, base_share)
    run = train(config, on_step, watch.should_stop)
    completion = run.completion()
    assert completion is not None, "train returns completed runs"
    if completion.stopped is not None and rules is None:
        raise ConfigError(
            f"{run.path}: the stop rules ended this run after {completion.steps} steps ({completion.stopped}), and "
            "--no-stop cannot continue an ended run. Choose another --out."
        )
    rows = read_steps(run.metrics)
    found = watch.alarm(rows)
    prune(run, rows, found)
    models = saved_models(run, rows)
    step = last_good(models, rows, found)
    return Trained(
        steps=len(rows),
        alarm=str(found) if found else None,
        ended_early=completion.stopped is not None,
        unwatched=tuple(unwatched(rows)) if rules else (),
        chosen_step=step,
        chosen_model=str(models[step] if step else config.openrlhf["actor.model_name_or_path"]),
    )


def saved_models(folder: RunFolder, rows: Sequence[StepRow]) -> dict[int, Path]:
    """The folders of complete models by step: those of ckpt.save_hf, and the final one if training has ended.

    A folder is called global_step<N>_hf once it is whole (hook/fixes/checkpoints.py, save_model). It counts once the
    metrics have a later step, because a resumed run may repeat the step that has saved it.
    """
    last = max((row.step for row in rows), default=0)
    named = ((re.fullmatch(r"global_step(\d+)_hf", path.name), path) for path in folder.checkpoints.glob("*_hf"))
    found = {int(match[1]): path for match, path in named if match and int(match[1]) < last}
    completion = folder.completion()
    if completion is not None and completion.stopped is None:
        found[last] = folder.model
    return dict(sorted(found.items()))


def last_good(steps: Collection[int], rows: Sequence[StepRow], alarm: Alarm | None) -> int:
    """The last of the saved models' `steps` before the alarm; 0 where there is none.

    A model is not good if the numbers of its step or of the next step, which begins with it, are not finite.
    """
    broken = {row.step for row in rows if row.broken}
    before = [step for step in steps if alarm is None or step <= alarm.trusted_until]
    return max((step for step in before if broken.isdisjoint((step, step + 1))), default=0)


def prune(folder: RunFolder, rows: Sequence[StepRow], alarm: Alarm | None, patience: int = 0) -> None:
    """Delete saved models, which are large, except for the newest, the last good one, and those that may become it.

    A limit that was passed in each of the last `patience` steps may raise an alarm at the next, and then the last good
    model is from before these steps.
    """
    models, last = saved_models(folder, rows), max((row.step for row in rows), default=0)
    kept = {
        max(models, default=0),
        last_good(models, rows, alarm),
        *(step for step in models if step > last - patience),
    }
    kept.add(last_good([step for step in models if step <= last - patience], rows, alarm))
    for step, path in models.items():
        if step not in kept:
            shutil.rmtree(path)
