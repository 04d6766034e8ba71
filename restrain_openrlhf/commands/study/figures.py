"""Figures of a study: accuracy by training step, and how the policies voted."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from restrain_openrlhf.commands.study.results import Curve
from restrain_openrlhf.commands.study.votes import Course

mpl.use("Agg")
# Colours before they come again, dashed.
COLORS = 10


def save_figures(found: Sequence[Curve], voted: Sequence[Course], out: Path) -> None:
    """Write curves.png and a picture per group's votes into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    draw_curves(found).savefig(out / "curves.png", dpi=120)
    for group in dict.fromkeys(course.group for course in voted):
        draw_votes([course for course in voted if course.group == group]).savefig(out / f"{group}-votes.png", dpi=120)


def draw_curves(found: Sequence[Curve]) -> Figure:
    """Held-out pass@1 by step: one panel per group, one line per configuration, shaded by ±1 standard deviation.

    A cross on a line is the Model Collapse Step of one of its seeds.
    """
    groups = list(dict.fromkeys(curve.group for curve in found))
    figure = Figure(figsize=(7.5 * len(groups), 4.5), layout="constrained")
    panels = figure.subplots(1, len(groups), squeeze=False)[0]
    for axes, group in zip(panels, groups, strict=True):
        curves = [curve for curve in found if curve.group == group]
        for place, curve in enumerate(curves):
            (line,) = axes.plot(curve.steps, curve.mean, **_look(place), label=curve.name, linewidth=1.8)
            low, high = curve.mean - curve.deviation, curve.mean + curve.deviation
            axes.fill_between(curve.steps, low, high, alpha=0.15, color=line.get_color(), linewidth=0)
            collapsed = [one.step for one in curve.collapses if one.step is not None]
            heights = np.interp(collapsed, curve.steps, curve.mean)
            axes.plot(collapsed, heights, "x", color=line.get_color(), markersize=9, markeredgewidth=2)
        axes.set(title=group, xlabel="training step", ylabel="held-out pass@1")
        axes.grid(alpha=0.3)
        if any(one.step is not None for curve in curves for one in curve.collapses):
            axes.plot([], [], "x", color="black", label="Model Collapse Step of a seed")
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def draw_votes(voted: Sequence[Course]) -> Figure:
    """One panel per quantity of one group's runs, one line per configuration: the mean over its seeds, by step."""
    quantities = list(dict.fromkeys(course.quantity for course in voted))
    looks = {name: _look(place) for place, name in enumerate(dict.fromkeys(course.name for course in voted))}
    figure = Figure(figsize=(11, 3.6 * math.ceil(len(quantities) / 2)), layout="constrained")
    panels = figure.subplots(math.ceil(len(quantities) / 2), 2, squeeze=False).flat
    for axes, quantity in zip(panels, quantities, strict=False):
        for course in voted:
            if course.quantity == quantity:
                axes.plot(course.steps, course.mean, **looks[course.name], linewidth=1.5)
        axes.set(title=quantity, xlabel="training step")
        axes.grid(alpha=0.3)
    if len(quantities) % 2:
        figure.axes[-1].set_axis_off()
    lines = [Line2D([], [], **look, label=name) for name, look in looks.items()]
    figure.suptitle(voted[0].group)
    figure.legend(handles=lines, loc="outside lower center", ncols=6, fontsize=8)
    return figure


def _look(place: int) -> dict[str, Any]:
    return {"color": f"C{place % COLORS}", "linestyle": "-" if place < COLORS else "--"}
