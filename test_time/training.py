"""Training on the test set's prompts: stop rules after each step; the last good and the best model are kept."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from restrain_openrlhf.answers import classes
from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.reference import Reference
from restrain_openrlhf.run.folder import RunFolder
from restrain_openrlhf.run.metrics import StepRow, read_steps
from restrain_openrlhf.run.train import train
from restrain_openrlhf.vote_statistics import top_answer_share
from test_time.adaptation import Adaptation, AdaptationFolder
from test_time.checkpoints import SavedModel, best, last_good, prune, saved_models
from test_time.stopping import Alarm, alarm, unwatched


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
    job: Adaptation, config: RunConfig, before: Reference, on_step: Callable[[StepRow, int], None]
) -> Trained:
    """Train, or resume; `before` are the base model's votes.

    Raises ConfigError where stop rules have ended the run, and --no-stop is given now.
    """
    folder = AdaptationFolder(job.out)
    base_share = _top_answer_share(before)

    def find_alarm(rows: Sequence[StepRow]) -> Alarm | None:
        return alarm(rows, base_share, job.stop) if job.stop else None

    def should_stop(rows: Sequence[StepRow]) -> str | None:
        found = find_alarm(rows)
        prune(folder.training, rows, found)
        return str(found) if found else None

    run = train(config, on_step, should_stop)
    _refuse_other_rules(job, run)
    rows = read_steps(run.metrics)
    found = find_alarm(rows)
    prune(run, rows, found)
    models = saved_models(run, rows)
    missing = tuple(unwatched(rows, base_share)) if job.stop else ()
    completion = run.completion()
    early = completion is not None and completion.stopped is not None
    return Trained(len(rows), found, early, last_good(models, rows, found), best(models, rows, found), missing)


def _top_answer_share(before: Reference) -> float:
    return top_answer_share(classes([row.majority for row in before.rows]))


def _refuse_other_rules(job: Adaptation, run: RunFolder) -> None:
    completion = run.completion()
    if completion is not None and completion.stopped is not None and job.stop is None:
        raise ConfigError(
            f"{run.path}: the rules ended this run after {completion.steps} steps ({completion.stopped}), and "
            "--no-stop cannot take that back. Choose another --out."
        )
