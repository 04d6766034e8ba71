"""Results of a study: held-out accuracy by method and step over seeds, from the runs' files."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from restrain_openrlhf.commands.study.plan import StudyRun, configurations
from restrain_openrlhf.records.collapse import Collapse, of_evaluations
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.metrics import read_held_out, read_steps


@dataclass(frozen=True)
class Curve:
    """One configuration's accuracy by step: `steps` (s,), `accuracies` (seeds, s), only steps that every seed has.

    `collapses` is one per seed, from all of that seed's evaluations.
    """

    group: str
    name: str
    steps: tuple[int, ...]
    accuracies: np.ndarray
    majority_share: float
    collapses: tuple[Collapse, ...]

    @property
    def seeds(self) -> int:
        """How many runs are in it."""
        return len(self.accuracies)

    @property
    def mean(self) -> np.ndarray:
        """Over seeds, (s,)."""
        return np.asarray(self.accuracies.mean(axis=0))

    @property
    def deviation(self) -> np.ndarray:
        """Standard deviation over seeds, (s,); 0 for a single one."""
        if self.seeds == 1:
            return np.zeros(len(self.steps))
        return np.asarray(self.accuracies.std(axis=0, ddof=1))


def curves(runs: Iterable[StudyRun]) -> list[Curve]:
    """One curve per configuration that has evaluations, in the order of the study."""
    return [curve for same in configurations(runs) if (curve := _curve(same)) is not None]


def _curve(runs: Sequence[StudyRun]) -> Curve | None:
    evaluated = [(run, found) for run in runs if (found := read_held_out(run.config.run_dir))]
    if not evaluated:
        return None
    steps = sorted(set.intersection(*({row.step for row in rows} for _, rows in evaluated)))
    return Curve(
        group=runs[0].group,
        name=runs[0].name,
        steps=tuple(steps),
        accuracies=np.array([[row.pass_at_1 for row in rows if row.step in steps] for _, rows in evaluated]),
        majority_share=float(np.nanmean([_last_majority_share(run) for run, _ in evaluated])),
        collapses=tuple(of_evaluations(rows) for _, rows in evaluated),
    )


def _last_majority_share(run: StudyRun) -> float:
    rows = read_steps(RunFolder(run.config.run_dir).metrics)
    return float(rows[-1].votes["majority_share_mean"]) if rows else float("nan")
