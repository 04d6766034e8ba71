"""A study's table, as Markdown and as CSV, and its figures: accuracy by step, and how the policies voted."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from restrain_openrlhf.commands.study.plan import StudyRun
from restrain_openrlhf.commands.study.results import ACCURACY, Curve, accuracies, votes
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.evaluation.figures.page import save_figures
from restrain_openrlhf.records.collapse import Collapse

mpl.use("Agg")
HEADER = ("group", "method", "seeds", "before", "after", "sd", "best", "at step", "steps", "collapse step")
# Colours before they come again, dashed.
COLORS = 10


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
    pictures = {"curves": draw({f"{group}: {ACCURACY}": same for group, same in _panels(found, "group").items()})}
    for group, voted in _panels(votes(runs), "group").items():
        pictures[f"{group}-votes"] = draw(_panels(voted, "quantity"))
    save_figures(pictures, out)


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


def _panels(curves: Sequence[Curve], by: str) -> dict[str, list[Curve]]:
    found: dict[str, list[Curve]] = {}
    for curve in curves:
        found.setdefault(getattr(curve, by), []).append(curve)
    return found


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
