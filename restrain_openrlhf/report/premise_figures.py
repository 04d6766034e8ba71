"""Figures of `restrain premise`: sizes of majorities, where methods learn, the most common answer, reliability."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from restrain_openrlhf.premise.diagnosis import Premise
from restrain_openrlhf.report.paper_figures import draw_reliability

mpl.use("Agg")


def save_premise_figures(premise: Premise, out: Path) -> list[Path]:
    """Write sizes.png, learning.png, and with gold reliability.png, into `out`; returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    figures = {"sizes.png": draw_sizes(premise), "learning.png": draw_learning(premise)}
    if premise.gold is not None:
        title = f"{premise.gold.prompts} prompts with gold"
        figures["reliability.png"] = draw_reliability(premise.gold.by_size, title)
    for name, figure in figures.items():
        figure.savefig(out / name, dpi=120)
    return [out / name for name in figures]


def draw_sizes(premise: Premise) -> Figure:
    """Share of prompts by the size of the frozen majority."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.bar(range(premise.n + 1), [count / premise.prompts for count in premise.sizes], color="tab:gray")
    axes.set_xticks(range(0, premise.n + 1, max(1, premise.n // 16)))
    axes.set(
        title=f"{premise.prompts} prompts; {premise.chosen.name} penalises {premise.chosen.prompts_penalized:.1%}",
        xlabel=f"rollouts in the majority, of {premise.n}",
        ylabel="share of prompts",
    )
    axes.grid(alpha=0.3, axis="y")
    return figure


def draw_learning(premise: Premise) -> Figure:
    """Left: share of squared advantage by majority size, a bar per method. Right: what two kinds of answers gain."""
    figure = Figure(figsize=(11, 0.45 * len(premise.methods) + 1.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    _stacked(left, premise)
    _pushes(right, premise)
    left.invert_yaxis()
    return figure


def _stacked(axes: Axes, premise: Premise) -> None:
    names = [one.name for one in premise.methods]
    start = [0.0] * len(names)
    for place, of in enumerate(premise.bins):
        widths = [one.by_size[place] for one in premise.methods]
        color = mpl.colormaps["viridis"](place / max(1, len(premise.bins) - 1))
        axes.barh(names, widths, left=start, color=color, label=f"majority of {of}")
        start = [at + width for at, width in zip(start, widths, strict=True)]
    axes.set(title="squared advantage", xlabel="share", xlim=(0, 1))
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)


def _pushes(axes: Axes, premise: Premise) -> None:
    rows = range(len(premise.methods))
    common = [one.shared_push or 0.0 for one in premise.methods]
    name = repr(premise.common[0].text) if premise.common else "the most common answer"
    axes.barh([row + 0.2 for row in rows], common, height=0.35, color="tab:red", label=f"on {name}")
    if premise.gold is not None:
        right = [one.right_push or 0.0 for one in premise.methods]
        axes.barh([row - 0.2 for row in rows], right, height=0.35, color="tab:green", label="on right answers")
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set(title="push", xlabel="share of all |A|")
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)
