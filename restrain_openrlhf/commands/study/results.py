"""What a study's runs left, by configuration and step over seeds: held-out accuracy, and how the policies voted."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import fmean

import numpy as np

from restrain_openrlhf.commands.study.plan import StudyRun
from restrain_openrlhf.errors import ConfigError, DataError
from restrain_openrlhf.evaluation.figures.curves import Panel, number, vote
from restrain_openrlhf.evaluation.label_quality import GroupFacts
from restrain_openrlhf.evaluation.prompt_gold import PromptGold, answers_to, join, read_as
from restrain_openrlhf.records.collapse import Collapse, of_evaluations
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.kept import kept_files, read_kept
from restrain_openrlhf.records.metrics import ENTROPY, each_step, read_held_out

ACCURACY = "held-out pass@1"
LOGGED = (
    Panel("mean majority share", vote("majority_share_mean")),
    Panel("entropy, nats per token", number(ENTROPY)),
    Panel("most common majority across prompts", vote("top_answer_share")),
)
MAJ_AT_K = "maj@k of the prompts trained on"
# Steps in one point of the votes: a step has few prompts.
WINDOW = 5
# A run's value by step; empty where it has none.
ByStep = Callable[[Path], Mapping[int, float]]


@dataclass(frozen=True)
class Curve:
    """One quantity of one configuration: `values` (seeds, points) at `steps`, of the steps that every seed has.

    `collapses` is one per seed, of the accuracy alone.
    """

    group: str
    name: str
    quantity: str
    steps: tuple[int, ...]
    values: np.ndarray
    collapses: tuple[Collapse, ...] = ()

    @property
    def seeds(self) -> int:
        """How many runs are in it."""
        return len(self.values)

    @property
    def mean(self) -> np.ndarray:
        """Over seeds, (points,)."""
        return np.asarray(self.values.mean(axis=0))

    @property
    def deviation(self) -> np.ndarray:
        """Standard deviation over seeds, (points,); 0 for a single one."""
        return np.asarray(self.values.std(axis=0, ddof=1)) if self.seeds > 1 else np.zeros(len(self.steps))


def accuracies(runs: Iterable[StudyRun]) -> list[Curve]:
    """Held-out pass@1 of each configuration that has evaluations, in the order of the study."""
    return _curves(ACCURACY, runs, lambda run: {row.step: row.pass_at_1 for row in read_held_out(run)}, 1)


def votes(runs: Sequence[StudyRun], gold: Mapping[str, str] | None = None) -> list[Curve]:
    """How the policies voted, means of WINDOW steps; with gold (answers by the problem's hash) also maj@k.

    Raises DataError where no run has a kept rollout of a prompt with gold.
    """
    found = [curve for panel in LOGGED for curve in _curves(panel.title, runs, partial(_logged, panel), WINDOW)]
    if gold is None:
        return found
    right = _curves(MAJ_AT_K, runs, partial(maj_at_k, gold=gold), WINDOW)
    if not right:
        raise DataError(
            "--gold has no answer to any prompt of the runs' kept rollouts. They are joined by the problem's hash. "
            "Give gold for the prompts trained on, rows {problem, answer}."
        )
    return found + right


def read_gold(files: Sequence[Path], runs: Sequence[StudyRun]) -> dict[str, str] | None:
    """The answers of several files; None for none.

    Raises DataError where one cannot be read, and ConfigError where no run keeps rollouts.
    """
    if files and not any(run.config.keeps_rollouts for run in runs):
        raise ConfigError("--gold is for maj@k of kept rollouts, and no run keeps any. Set rollouts.keep: 8, or more.")
    flags = [run.config.openrlhf for run in runs]
    return {key: answer for file in files for key, answer in answers_to(flags, file).items()} if files else None


def maj_at_k(run: Path, gold: Mapping[str, str]) -> dict[int, float]:
    """The share of a step's kept groups whose majority is right; empty where none was kept or none has gold."""
    if not kept_files(run):
        return {}
    answers = join({group.prompt for group in read_kept(run)}, gold) or PromptGold()
    answers = read_as(answers, RunFolder(run).flags(), RunFolder(run).kind)
    right: dict[int, list[bool]] = defaultdict(list)
    for group in read_kept(run):
        if answers.of(group.prompt) is not None:
            right[group.step].append(GroupFacts.of(group, answers).majority_right)
    return {step: fmean(each) for step, each in right.items()}


def _logged(panel: Panel, run: Path) -> dict[int, float]:
    rows = each_step(RunFolder(run).metrics)
    return {row.step: value for row in rows if (value := panel.value(row)) is not None}


def _curves(quantity: str, runs: Iterable[StudyRun], of: ByStep, window: int) -> list[Curve]:
    folders: dict[tuple[str, str], list[Path]] = {}
    for run in runs:
        folders.setdefault((run.group, run.name), []).append(run.config.run_dir)
    found = []
    for (group, name), seeds in folders.items():
        by_seed = {seed: by_step for seed in seeds if (by_step := of(seed))}
        shared = sorted(set.intersection(*map(set, by_seed.values()))) if by_seed else []
        windows = [list(steps) for _, steps in groupby(shared, key=lambda step: (step - 1) // window)]
        values = [[fmean(by_step[step] for step in steps) for steps in windows] for by_step in by_seed.values()]
        if windows:
            ends = tuple(steps[-1] for steps in windows)
            collapses = tuple(of_evaluations(read_held_out(seed)) for seed in by_seed) if quantity == ACCURACY else ()
            found.append(Curve(group, name, quantity, ends, np.array(values), collapses))
    return found
