"""Training on the test set's prompts: stop rules after each step; the newest and the last good model are kept."""

import re
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel

from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.hook.launch.train import train
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.metrics import StepRow, read_steps
from restrain_openrlhf.reference import Reference
from restrain_openrlhf.scoring.vote_statistics import top_answer_share
from test_time.stopping import Alarm, StopRules, alarm, passed_since, unwatched, watched_signals


class Trained(BaseModel, frozen=True):
    """How training went. `chosen_model` is the last good one, of step `chosen_step`.

    `chosen_step` 0 is the base model: none was saved before the alarm. `alarm` is the rule that fired, whether it
    `ended_early` the run or not: an alarm in the last steps does not. `unwatched`: signals that the host did not log,
    so that their rules were off.
    """

    steps: int
    alarm: str | None
    ended_early: bool
    unwatched: tuple[str, ...]
    chosen_step: int
    chosen_model: str


def train_watched(
    config: RunConfig, rules: StopRules | None, before: Reference, on_step: Callable[[StepRow, int], None]
) -> Trained:
    """Train, or resume; `before` are the base model's votes.

    Raises ConfigError where stop rules have ended the run, and there are none now.
    """
    base_share = top_answer_share([row.majority_key for row in before.rows])

    def find_alarm(rows: Sequence[StepRow]) -> Alarm | None:
        return alarm(rows, base_share, rules) if rules else None

    def should_stop(rows: Sequence[StepRow]) -> str | None:
        found = find_alarm(rows)
        prune(RunFolder(config.run_dir), rows, found, passed_since(rows, base_share, rules) if rules else ())
        return str(found) if found else None

    seen: list[StepRow] = []

    def on_watched(row: StepRow, total: int) -> None:
        seen.append(row)
        signals = watched_signals(seen, base_share, rules) if rules else ()
        on_step(replace(row, watched=(*row.watched, *signals)), total)

    run = train(config, on_watched, should_stop)
    completion = run.completion()
    assert completion is not None, "train returns completed runs"
    if completion.stopped is not None and rules is None:
        raise ConfigError(
            f"{run.path}: the stop rules ended this run after {completion.steps} steps ({completion.stopped}), and "
            "--no-stop cannot continue an ended run. Choose another --out."
        )
    rows = read_steps(run.metrics)
    found = find_alarm(rows)
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
    """Folders of complete models by their step, in order: those of ckpt.save_hf, and the last if training has ended.

    global_step<N>_hf has this name once it is whole (hook/fixes/checkpoints.py, save_model); it counts when the metrics
    have a later step, as the step that saves may still be repeated.
    """
    last = max((row.step for row in rows), default=0)
    named = ((re.fullmatch(r"global_step(\d+)_hf", path.name), path) for path in folder.checkpoints.glob("*_hf"))
    found = {int(match[1]): path for match, path in named if match and int(match[1]) < last}
    completion = folder.completion()
    if completion is not None and completion.stopped is None:
        found[last] = folder.model
    return dict(sorted(found.items()))


def last_good(steps: Collection[int], rows: Sequence[StepRow], alarm: Alarm | None) -> int:
    """The last of the saved models' steps before the alarm; 0 where there is none.

    Never one that has no finite numbers, or whose next step, which begins from it, has none.
    """
    broken = {row.step for row in rows if row.broken}
    before = [step for step in steps if alarm is None or step <= alarm.trusted_until]
    return max((step for step in before if broken.isdisjoint((step, step + 1))), default=0)


def prune(folder: RunFolder, rows: Sequence[StepRow], alarm: Alarm | None, passed_since: Collection[int] = ()) -> None:
    """Delete saved models that are neither newest nor last good: they are large.

    Limits have been passed since these steps without an alarm yet: what would be last good then is kept too.
    """
    models = saved_models(folder, rows)
    kept = {max(models, default=0), last_good(models, rows, alarm)}
    kept |= {last_good([step for step in models if step < since], rows, alarm) for since in passed_since}
    for step, path in models.items():
        if step not in kept:
            shutil.rmtree(path)
