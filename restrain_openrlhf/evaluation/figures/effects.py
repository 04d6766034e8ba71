"""Accuracy against a label of evaluated runs (step, σ, δ, κ), as a figure and as its numbers."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.figures.page import save_figures, save_numbers
from restrain_openrlhf.evaluation.result import Result


@dataclass(frozen=True)
class Point:
    """pass@1 of one benchmark at one value of the label: the mean over runs (seeds), with its range.

    One run's range is its interval at 95 % over problems, and it has one over samples, where there were several of
    each problem; several runs' is from the lowest to the highest of them.
    """

    benchmark: str
    line: str
    x: str
    pass_at_1: float
    low: float
    high: float
    runs: int
    samples_low: float | None = None
    samples_high: float | None = None


def points(results: Sequence[Result], x: str, by: str | None) -> list[Point]:
    """Evaluations gathered by benchmark, by the label `by` (None: one line), and by the label `x`, in order of x.

    Raises DataError for an evaluation that lacks one of the labels.
    """
    groups: dict[tuple[str, str, str], list[Result]] = defaultdict(list)
    for result in results:
        line = _label(result, by) if by else "pass@1"
        groups[result.provenance.title, line, _label(result, x)].append(result)
    found = [_point(key, group) for key, group in groups.items()]
    return sorted(found, key=lambda point: (point.benchmark, point.line, order(point.x)))


def _label(result: Result, name: str) -> str:
    labels = result.provenance.labels
    if name not in labels:
        raise DataError(
            f"The evaluation of {result.provenance.model} on {result.provenance.benchmark} has no label {name!r} "
            f"(it has {', '.join(labels) or 'none'}). Evaluate with --label {name}=VALUE."
        )
    return labels[name]


def _point(key: tuple[str, str, str], group: Sequence[Result]) -> Point:
    values = [result.scores.pass_at_1 for result in group]
    if len(group) > 1:
        return Point(*key, float(np.mean(values)), min(values), max(values), len(group))
    only = group[0].scores
    return Point(*key, only.pass_at_1, only.low, only.high, 1, only.samples_low, only.samples_high)


def order(x: str) -> tuple[float, str]:
    """Numbers by size, `inf` and `∞` last of them; other words after all numbers, by the alphabet."""
    try:
        return float(x.replace("∞", "inf")), ""
    except ValueError:
        return float("inf"), x


def draw_effect(found: Sequence[Point], x: str) -> Figure:
    """One small plot per benchmark, one line per `line`. The axis is to scale where every value is a finite number.

    The band is the range of `Point`; a thick stroke through a point is its interval over samples.
    """
    panels = list(dict.fromkeys(point.benchmark for point in found))
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.5 * columns, 3.5 * rows), layout="constrained")
    places = _places(found)
    for axes, panel in zip(figure.subplots(rows, columns, squeeze=False).flat, panels, strict=False):
        _panel(axes, [point for point in found if point.benchmark == panel], places)
        axes.set(title=panel, xlabel=x, ylabel="pass@1")
    for axes in figure.axes[len(panels) :]:
        axes.set_visible(False)
    return figure


def _places(found: Sequence[Point]) -> Mapping[str, float]:
    values = sorted({point.x for point in found}, key=order)
    numbers = [order(value) for value in values]
    to_scale = all(np.isfinite(number) and not word for number, word in numbers)
    return {value: numbers[place][0] if to_scale else float(place) for place, value in enumerate(values)}


def _panel(axes: Axes, found: Sequence[Point], places: Mapping[str, float]) -> None:
    for line in dict.fromkeys(point.line for point in found):
        mine = [point for point in found if point.line == line]
        at = [places[point.x] for point in mine]
        (drawn,) = axes.plot(at, [point.pass_at_1 for point in mine], marker="o", label=line)
        axes.fill_between(at, [point.low for point in mine], [point.high for point in mine], alpha=0.15)
        for place, point in zip(at, mine, strict=True):
            if point.samples_low is not None and point.samples_high is not None:
                axes.plot([place] * 2, [point.samples_low, point.samples_high], color=drawn.get_color(), linewidth=3)
    axes.set_xticks(sorted(places.values()), [value for value, _ in sorted(places.items(), key=lambda item: item[1])])
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def save_effect(found: Sequence[Point], x: str, out: Path) -> list[Path]:
    """Write effect-X.png and effect-X.csv into `out`; returns their paths."""
    paths = save_figures({f"effect-{x}": draw_effect(found, x)}, out)
    header = [{"x": x}.get(field.name, field.name) for field in fields(Point)]
    return [*paths, save_numbers(out / f"effect-{x}.csv", header, map(astuple, found))]
