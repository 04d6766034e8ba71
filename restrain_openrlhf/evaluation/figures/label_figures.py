"""Pictures of a run's pseudo-labels against gold: by step, by the majority's size, and false confidence."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from restrain_openrlhf.evaluation.figures.page import save_figures
from restrain_openrlhf.evaluation.label_quality import LabelQuality


def draw_by_step(found: LabelQuality) -> Figure:
    """Accuracies of labels, signals and rollouts, and the weight on right answers, over windows of steps."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    middles = [(row.first + row.last) / 2 for row in found.by_window]
    measures = [row.measures for row in found.by_window]
    lines: dict[str, list[float | None]] = {
        "the majority is right": [each.label_accuracy for each in measures],
        "the training signal agrees with gold": [each.reward_accuracy for each in measures],
        "weight on right answers": [each.weight_on_right for each in measures],
        "rollouts that are right": [each.rollout_accuracy for each in measures],
    }
    for name, values in lines.items():
        # A window without the number has a gap.
        axes.plot(middles, [float("nan") if value is None else value for value in values], marker=".", label=name)
    axes.set(title="Labels against gold", xlabel="training step", ylabel="share")
    return _finished(figure, axes)


def draw_by_size(found: LabelQuality) -> Figure:
    """Above: how often the majority, or some rollout, is right, by the majority's share. Below: how many groups."""
    figure = Figure(figsize=(7, 6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    shares = [row.size / row.voters for row in found.by_size]
    measures = [row.measures for row in found.by_size]
    # Rounding puts a bound of the interval beyond an accuracy of 0 or 1, and matplotlib refuses negative lengths.
    below = [max(0.0, each.label_accuracy - each.label_low) for each in measures]
    above = [max(0.0, each.label_high - each.label_accuracy) for each in measures]
    upper.plot(shares, [each.some_right for each in measures], marker="o", label="some rollout is right")
    accuracy = [each.label_accuracy for each in measures]
    upper.errorbar(shares, accuracy, yerr=(below, above), marker="s", capsize=3, label="the majority is right")
    upper.set(title="Labels against gold, by the size of the majority", ylabel="share of groups")
    lower.bar(shares, [each.groups for each in measures], width=0.5 / found.by_size[0].voters, color="tab:gray")
    lower.set(xlabel="share of the voters in the majority", ylabel="groups")
    return _finished(figure, upper)


def draw_false_confidence(found: LabelQuality) -> Figure:
    """The share of wrong majorities among those of at least some share of the voters."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    shares = [point.share for point in found.false_confidence]
    axes.plot(shares, [point.wrong for point in found.false_confidence], marker="o", label="the majority is wrong")
    every = found.total.groups
    rest = [point.groups / every for point in found.false_confidence]
    axes.plot(shares, rest, linestyle="--", color="tab:gray", label="groups with such a majority, of all")
    axes.set(title="False confidence", xlabel="the majority has at least this share of the voters", ylabel="share")
    return _finished(figure, axes)


def _finished(figure: Figure, axes: Axes) -> Figure:
    axes.set_ylim(-0.03, 1.03)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure


def save_label_figures(found: LabelQuality, out: Path) -> list[Path]:
    """Write labels-by-step.png, labels-by-size.png and false-confidence.png into `out`; returns their paths."""
    pictures = {
        "labels-by-step": draw_by_step(found),
        "labels-by-size": draw_by_size(found),
        "false-confidence": draw_false_confidence(found),
    }
    return save_figures(pictures, out)
