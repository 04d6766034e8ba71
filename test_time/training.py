"""Trains on the prompts of the test set, applies stop rules after each step, and keeps the last good model."""

import re
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import BaseModel

from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.hook.launch.progress import OnStep
from restrain_openrlhf.hook.launch.train import train
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.metrics import StepRow, read_steps
from restrain_openrlhf.reference import Reference
from restrain_openrlhf.scoring.vote_statistics import top_answer_share
from test_time.stopping import Alarm, StopRules, alarm, passed_since, unwatched, watched_signals


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


@dataclass
class Watch:
    """Stop rules over a run, with the base model's share of the most common answer; without `rules`, no rule fires."""

    folder: RunFolder
    rules: StopRules | None
    base_share: float
    on_step: OnStep
    _seen: list[StepRow] = field(default_factory=list)

    def alarm(self, rows: Sequence[StepRow]) -> Alarm | None:
        """The first alarm in these steps."""
        return alarm(rows, self.base_share, self.rules) if self.rules else None

    def should_stop(self, rows: Sequence[StepRow]) -> str | None:
        """Why the run should end after these steps, or None. Deletes models that are no longer needed."""
        found = self.alarm(rows)
        prune(self.folder, rows, found, passed_since(rows, self.base_share, self.rules) if self.rules else ())
        return str(found) if found else None

    def show(self, row: StepRow, total: int) -> None:
        """Report a step of `total` steps, with the signals that the rules watch."""
        self._seen.append(row)
        signals = watched_signals(self._seen, self.base_share, self.rules) if self.rules else ()
        self.on_step(replace(row, watched=(*row.watched, *signals)), total)


def train_watched(config: RunConfig, rules: StopRules | None, before: Reference, on_step: OnStep) -> Trained:
    """Train, or resume training; `before` has the base model's votes.

    Raises ConfigError if stop rules have ended the run earlier, and there are no `rules` now.
    """
    base_share = top_answer_share(config.answers.alike([row.majority_key for row in before.rows]))
    watch = Watch(RunFolder(config.run_dir), rules, base_share, on_step)
    run = train(config, watch.show, watch.should_stop)
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


def prune(folder: RunFolder, rows: Sequence[StepRow], alarm: Alarm | None, passed_since: Collection[int] = ()) -> None:
    """Delete saved models, which are large, except for the newest and the last good one.

    `passed_since` has steps since which limits are passed. The models that would be the last good ones if an alarm
    followed are kept, too.
    """
    models = saved_models(folder, rows)
    kept = {max(models, default=0), last_good(models, rows, alarm)}
    kept |= {last_good([step for step in models if step < since], rows, alarm) for since in passed_since}
    for step, path in models.items():
        if step not in kept:
            shutil.rmtree(path)
