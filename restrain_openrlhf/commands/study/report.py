"""Held-out accuracy of a study's runs, by configuration over seeds: a table, as Markdown and as CSV, and a picture."""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from restrain_openrlhf.commands.study.plan import StudyRun
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.evaluation.figures.page import save_figures
from restrain_openrlhf.records.collapse import Collapse, of_evaluations
from restrain_openrlhf.records.metrics import HeldOutAccuracy, read_held_out

mpl.use("Agg")
HEADER = ("group", "method", "seeds", "before", "after", "sd", "best", "at step", "steps", "collapse step")
# Colours before they come again, dashed.
COLORS = 10


@dataclass(frozen=True)
class Curve:
    """pass@1 of one configuration: `values` (seeds, points) at `steps`, of the steps that every seed has.

    `collapses` is one per seed.
    """

    group: str
    name: str
    steps: tuple[int, ...]
    values: np.ndarray
    collapses: tuple[Collapse, ...]

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
    evaluated: dict[tuple[str, str], list[Sequence[HeldOutAccuracy]]] = {}
    for run in runs:
        if rows := read_held_out(run.config.run_dir):
            evaluated.setdefault((run.group, run.name), []).append(rows)
    found = []
    for (group, name), seeds in evaluated.items():
        by_seed = [{row.step: row.pass_at_1 for row in rows} for rows in seeds]
        if steps := sorted(set.intersection(*map(set, by_seed))):
            values = np.array([[by_step[step] for step in steps] for by_step in by_seed])
            found.append(Curve(group, name, tuple(steps), values, tuple(map(of_evaluations, seeds))))
    return found


def write_study(runs: Sequence[StudyRun], out: Path) -> None:
    """Write tables and figures from the runs' files so far. Raises RunError where no run has been evaluated yet."""
    found = accuracies(runs)
    if not found:
        raise RunError(f"{out}: no run has an evaluation yet, so there is nothing to report. Read the runs' logs.")
    rows = [accuracy_row(curve) for curve in found]
    lines = "".join(f"| {' | '.join(cells)} |\n" for cells in (HEADER, ["---"] * len(HEADER), *rows))
    (out / "table.md").write_text(f"## Held-out accuracy (pass@1)\n\n{lines}", encoding="utf-8")
    with (out / "table.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([HEADER, *rows])
    groups: dict[str, list[Curve]] = {}
    for curve in found:
        groups.setdefault(f"{curve.group}: held-out pass@1", []).append(curve)
    save_figures({"curves": draw(groups)}, out)


def accuracy_row(curve: Curve) -> list[str]:
    """Means over seeds; `sd` is the standard deviation of `after` over seeds. Collapse steps are each seed's."""
    best = int(curve.mean.argmax())
    return [
        curve.group,
        curve.name,
        str(curve.seeds),
        f"{curve.mean[0]:.1%}",
        f"{curve.mean[-1]:.1%}",
        f"{curve.deviation[-1]:.1%}" if curve.seeds > 1 else "–",
        f"{curve.mean[best]:.1%}",
        str(curve.steps[best]),
        str(curve.steps[-1]),
        collapse_cell(curve.collapses),
    ]


def collapse_cell(collapses: Sequence[Collapse]) -> str:
    """Each seed's Model Collapse Step, or one word for all: "–" without a collapse, "?" with too few evaluations."""
    words = ["?" if not one.is_known else "–" if one.step is None else str(one.step) for one in collapses]
    return words[0] if len(set(words)) == 1 else ", ".join(words)


def draw(panels: Mapping[str, Sequence[Curve]]) -> Figure:
    """One panel per title, two in a row, and one line per configuration: the mean over its seeds by step, ±1 sd.

    A cross on a line is the Model Collapse Step of one of its seeds.
    """
    rows, columns = math.ceil(len(panels) / 2), min(2, len(panels))
    figure = Figure(figsize=(5.5 * columns, 3.6 * rows + 0.9), layout="constrained")
    names = dict.fromkeys(curve.name for curves in panels.values() for curve in curves)
    looks = {name: _look(place) for place, name in enumerate(names)}
    lines = {}
    for axes, (title, curves) in zip(figure.subplots(rows, columns, squeeze=False).flat, panels.items(), strict=False):
        for curve in curves:
            lines[curve.name] = _line(axes, curve, looks[curve.name])
        axes.set(title=title, xlabel="training step")
        axes.grid(alpha=0.3)
    if any(one.step is not None for curves in panels.values() for curve in curves for one in curve.collapses):
        figure.suptitle("×: Model Collapse Step of a seed", fontsize=9)
    figure.legend(lines.values(), lines, loc="outside lower center", ncols=3 * columns, fontsize=8)
    for axes in figure.axes[len(panels) :]:
        axes.set_axis_off()
    return figure


def _line(axes: Axes, curve: Curve, look: Mapping[str, Any]) -> Any:
    (line,) = axes.plot(curve.steps, curve.mean, **look, linewidth=1.6)
    low, high = curve.mean - curve.deviation, curve.mean + curve.deviation
    axes.fill_between(curve.steps, low, high, alpha=0.15, color=line.get_color(), linewidth=0)
    collapsed = [one.step for one in curve.collapses if one.step is not None]
    heights = np.interp(collapsed, curve.steps, curve.mean)
    axes.plot(collapsed, heights, "x", color=line.get_color(), markersize=9, markeredgewidth=2)
    return line


def _look(place: int) -> dict[str, Any]:
    return {"color": f"C{place % COLORS}", "linestyle": "-" if place < COLORS else "--"}
