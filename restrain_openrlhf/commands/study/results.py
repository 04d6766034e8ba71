"""What a study's runs left, by configuration and step over seeds: held-out accuracy, and how the policies voted."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import fmean

import numpy as np

from restrain_openrlhf.commands.study.plan import StudyRun
from restrain_openrlhf.evaluation.figures.curves import Panel, number, vote
from restrain_openrlhf.records.collapse import Collapse, of_evaluations
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.metrics import ENTROPY, each_step, read_held_out

ACCURACY = "held-out pass@1"
LOGGED = (
    Panel("mean majority share", vote("majority_share_mean")),
    Panel("entropy, nats per token", number(ENTROPY)),
    Panel("most common majority across prompts", vote("top_answer_share")),
)
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


def votes(runs: Sequence[StudyRun]) -> list[Curve]:
    """How the policies voted, means of WINDOW steps."""
    return [curve for panel in LOGGED for curve in _curves(panel.title, runs, partial(_logged, panel), WINDOW)]


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
