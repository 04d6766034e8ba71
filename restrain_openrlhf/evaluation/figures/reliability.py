"""How far majorities can be trusted, as figures: by their size, and of a run's pseudo-labels by step."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from restrain_openrlhf.evaluation.estimators import SizeRow
from restrain_openrlhf.evaluation.figures.page import save_figures, save_numbers
from restrain_openrlhf.evaluation.label_quality import LabelQuality

SHARES = (-0.03, 1.03)
LABELS = {
    "label_accuracy": "the majority is right",
    "reward_accuracy": "the training signal agrees with gold",
    "weight_on_right": "weight on right answers",
    "rollout_accuracy": "rollouts that are right",
}


def draw_reliability(rows: Sequence[SizeRow], title: str) -> Figure:
    """Above: pass@n and the majority's accuracy (with its interval) by majority size. Below: how many problems."""
    figure = Figure(figsize=(7, 6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    sizes, n = [row.size for row in rows], rows[0].n
    accuracy = [row.majority_accuracy for row in rows]
    # Rounding puts a bound of the interval beyond an accuracy of 0 or 1, and matplotlib refuses negative lengths.
    below = [max(0.0, row.majority_accuracy - row.majority_low) for row in rows]
    above = [max(0.0, row.majority_high - row.majority_accuracy) for row in rows]
    upper.plot(sizes, [row.pass_at_n for row in rows], marker="o", label=f"pass@{n}: some rollout is right")
    upper.errorbar(sizes, accuracy, yerr=(below, above), marker="s", capsize=3, label="the majority is right")
    upper.set(title=title, ylabel="share of problems", ylim=SHARES)
    upper.grid(alpha=0.3)
    upper.legend()
    lower.bar(sizes, [row.problems for row in rows], color="tab:gray")
    lower.set(xlabel=f"rollouts in the majority, of {n}", ylabel="problems")
    lower.set_xticks(range(0, n + 1, max(1, n // 16)))
    return figure


def save_reliability(rows: Sequence[SizeRow], title: str, out: Path) -> list[Path]:
    """Write reliability.png and reliability.csv into `out`; returns their paths."""
    paths = save_figures({"reliability": draw_reliability(rows, title)}, out)
    header = list(SizeRow.model_fields)
    return [*paths, save_numbers(out / "reliability.csv", header, (row.model_dump().values() for row in rows))]


def draw_labels(found: LabelQuality) -> Figure:
    """Accuracies of labels, signals and rollouts, and the weight on right answers, over windows of steps."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    middles = [(row.first + row.last) / 2 for row in found.by_window]
    for name, label in LABELS.items():
        values = [getattr(row.measures, name) for row in found.by_window]
        # A window without the number has a gap.
        axes.plot(middles, [float("nan") if value is None else value for value in values], marker=".", label=label)
    axes.set(title="Labels against gold", xlabel="training step", ylabel="share", ylim=SHARES)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure
