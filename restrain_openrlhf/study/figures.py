"""Figures of a study: accuracy by method, by training step, by the value of a setting, and how the policies voted."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from restrain_openrlhf.study.results import Curve, Sweep
from restrain_openrlhf.study.votes import Course

mpl.use("Agg")
# Colours before they come again, dashed.
COLORS = 10


def save_figures(found: Sequence[Curve], swept: Sequence[Sweep], voted: Sequence[Course], out: Path) -> list[Path]:
    """curves.png, accuracy.png, a picture per group's votes and per sweep, written into `out`; returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    figures = {"curves.png": draw_curves(found), "accuracy.png": draw_bars(found)}
    for group in dict.fromkeys(course.group for course in voted):
        figures[f"{group}-votes.png"] = draw_votes([course for course in voted if course.group == group])
    figures |= {f"{sweep.group}-{sweep.setting}.png": draw_sweep(sweep) for sweep in swept}
    for name, figure in figures.items():
        figure.savefig(out / name, dpi=120)
    return [out / name for name in figures]


def groups_of(found: Sequence[Curve]) -> dict[str, list[Curve]]:
    """Curves by group, both in the order of the study."""
    groups: dict[str, list[Curve]] = {}
    for curve in found:
        groups.setdefault(curve.group, []).append(curve)
    return groups


def draw_curves(found: Sequence[Curve]) -> Figure:
    """Held-out pass@1 by step: one panel per group, one line per configuration, shaded by ±1 standard deviation.

    A cross on a line is the Model Collapse Step of one of its seeds.
    """
    groups = groups_of(found)
    figure = Figure(figsize=(7.5 * len(groups), 4.5), layout="constrained")
    panels = figure.subplots(1, len(groups), squeeze=False)[0]
    for axes, (group, curves) in zip(panels, groups.items(), strict=True):
        for place, curve in enumerate(curves):
            (line,) = axes.plot(curve.steps, curve.mean, **_look(place), label=curve.name, linewidth=1.8)
            low, high = curve.mean - curve.deviation, curve.mean + curve.deviation
            axes.fill_between(curve.steps, low, high, alpha=0.15, color=line.get_color(), linewidth=0)
            _mark_collapses(axes, line, curve)
        axes.set(title=group, xlabel="training step", ylabel="held-out pass@1")
        axes.grid(alpha=0.3)
        if any(one.step is not None for curve in curves for one in curve.collapses):
            axes.plot([], [], "x", color="black", label="Model Collapse Step of a seed")
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _mark_collapses(axes: Axes, line: Line2D, curve: Curve) -> None:
    steps = [one.step for one in curve.collapses if one.step is not None]
    heights = np.interp(steps, curve.steps, curve.mean)
    axes.plot(steps, heights, "x", color=line.get_color(), markersize=9, markeredgewidth=2)


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


def draw_bars(found: Sequence[Curve]) -> Figure:
    """Final held-out pass@1 of every configuration with ±1 standard deviation; the base model's as a dashed line."""
    groups = groups_of(found)
    figure = Figure(figsize=(6 * len(groups), 4), layout="constrained")
    panels = figure.subplots(1, len(groups), squeeze=False)[0]
    for axes, (group, curves) in zip(panels, groups.items(), strict=True):
        heights = [curve.mean[-1] for curve in curves]
        bars = axes.bar([curve.name for curve in curves], heights, yerr=[curve.deviation[-1] for curve in curves])
        axes.bar_label(bars, fmt=lambda height: f"{height:.1%}", padding=3, fontsize=8)
        axes.axhline(_base(curves), linestyle="--", color="gray", label="before training")
        axes.set(title=group, ylabel="held-out pass@1", ylim=(0, min(1.1, max(heights) + 0.2)))
        axes.tick_params(axis="x", rotation=25, labelsize=8)
        axes.legend(fontsize=8)
    return figure


def _base(curves: Sequence[Curve]) -> float:
    return float(sum(curve.mean[0] for curve in curves) / len(curves))


def draw_sweep(sweep: Sweep) -> Figure:
    """Final held-out pass@1 by the value of one setting; values evenly spaced, so that 0 and ∞ have a place."""
    figure = Figure(figsize=(5.5, 4), layout="constrained")
    axes: Axes = figure.subplots()
    names = ["∞" if math.isinf(value) else f"{value:g}" for value, _ in sweep.points]
    ends = [curve.mean[-1] for _, curve in sweep.points]
    axes.errorbar(
        range(len(names)), ends, yerr=[curve.deviation[-1] for _, curve in sweep.points], marker="o", capsize=4
    )
    axes.set_xticks(range(len(names)), names)
    axes.set(title=f"{sweep.group}: effect of {sweep.setting}", xlabel=sweep.setting, ylabel="held-out pass@1")
    axes.grid(alpha=0.3)
    return figure
