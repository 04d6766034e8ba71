"""The paper's figure of majority-vote reliability, from any graded rollouts."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from restrain_openrlhf.evaluation.reliability import SizeRow, as_csv

mpl.use("Agg")


def draw_reliability(rows: Sequence[SizeRow], title: str) -> Figure:
    """Above: pass@n and the majority's accuracy (with its interval) by majority size. Below: how many problems."""
    figure = Figure(figsize=(7, 6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    _accuracies(upper, rows, title)
    lower.bar([row.size for row in rows], [row.problems for row in rows], color="tab:gray")
    lower.set(xlabel=f"rollouts in the majority, of {rows[0].n}", ylabel="problems")
    lower.set_xticks(range(0, rows[0].n + 1, max(1, rows[0].n // 16)))
    return figure


def _accuracies(axes: Axes, rows: Sequence[SizeRow], title: str) -> None:
    sizes = [row.size for row in rows]
    accuracy = [row.majority_accuracy for row in rows]
    below = [row.majority_accuracy - row.majority_low for row in rows]
    above = [row.majority_high - row.majority_accuracy for row in rows]
    axes.plot(sizes, [row.pass_at_n for row in rows], marker="o", label=f"pass@{rows[0].n}: some rollout is right")
    axes.errorbar(sizes, accuracy, yerr=(below, above), marker="s", capsize=3, label="the majority is right")
    axes.set(title=title, ylabel="share of problems", ylim=(-0.03, 1.03))
    axes.grid(alpha=0.3)
    axes.legend()


def save_reliability(rows: Sequence[SizeRow], title: str, out: Path) -> list[Path]:
    """Write reliability.png and reliability.csv into `out`; returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    picture, table = out / "reliability.png", out / "reliability.csv"
    draw_reliability(rows, title).savefig(picture, dpi=120)
    table.write_text(as_csv(rows), encoding="utf-8")
    return [picture, table]
