"""Results of a study: held-out accuracy by method and step over seeds, from the runs' files."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from restrain_openrlhf.method import MethodSettings
from restrain_openrlhf.run.collapse import Collapse, of_evaluations
from restrain_openrlhf.run.folder import RunFolder
from restrain_openrlhf.run.metrics import HeldOutAccuracy, read_held_out, read_steps
from restrain_openrlhf.study.plan import StudyRun, configurations

SWEPT = ("sigma", "delta", "kappa")


@dataclass(frozen=True)
class Curve:
    """One configuration's accuracy by step: `steps` (s,), `accuracies` (seeds, s), only steps that every seed has.

    `collapses` is one per seed, from all of that seed's evaluations.
    """

    group: str
    name: str
    method: MethodSettings
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


@dataclass(frozen=True)
class Sweep:
    """Curves that differ in one setting of the method only, by its value."""

    group: str
    setting: str
    points: tuple[tuple[float, Curve], ...]


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
        method=runs[0].config.method,
        steps=tuple(steps),
        accuracies=np.array([_at(rows, steps) for _, rows in evaluated]),
        majority_share=float(np.nanmean([_last_majority_share(run) for run, _ in evaluated])),
        collapses=tuple(of_evaluations(rows) for _, rows in evaluated),
    )


def _at(rows: Sequence[HeldOutAccuracy], steps: Sequence[int]) -> list[float]:
    accuracy = {row.step: row.pass_at_1 for row in rows}
    return [accuracy[step] for step in steps]


def _last_majority_share(run: StudyRun) -> float:
    rows = read_steps(RunFolder(run.config.run_dir).metrics)
    return float(rows[-1].votes["majority_share_mean"]) if rows else float("nan")


def sweeps(found: Sequence[Curve]) -> list[Sweep]:
    """For sigma, delta and kappa, the curves of one group whose methods differ in nothing else; two values at least."""
    return [sweep for setting in SWEPT for sweep in _sweeps_of(setting, found)]


def _sweeps_of(setting: str, found: Sequence[Curve]) -> list[Sweep]:
    having = [curve for curve in found if setting in type(curve.method).model_fields]
    ordered = sorted(having, key=lambda curve: _all_else(setting, curve))
    made = []
    for (group, _), same in groupby(ordered, key=lambda curve: _all_else(setting, curve)):
        points = {float(getattr(curve.method, setting)): curve for curve in same}
        if len(points) > 1:
            made.append(Sweep(group, setting, tuple(sorted(points.items()))))
    return made


def _all_else(setting: str, curve: Curve) -> tuple[str, str]:
    return curve.group, curve.method.model_dump_json(exclude={setting})
