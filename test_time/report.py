"""An adaptation as pictures and tables: how sure the votes became, and, where gold was given, what that was worth."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from restrain_openrlhf.report.curves import load_curves, save_run_figures
from restrain_openrlhf.report.page import Picture, Table, write_page
from test_time.comparison import Comparison
from test_time.predictions import Prediction

mpl.use("Agg")
SHOWN = 50


def write_report(out: Path, run_dir: Path, rows: Sequence[Prediction], comparison: Comparison | None) -> Path:
    """Write report.html and its pictures into `out`; returns the page."""
    plots = out / "plots"
    training, votes, majority = save_run_figures([load_curves(run_dir)], plots)
    shares = plots / "shares.png"
    draw_shares(rows).savefig(shares, dpi=120)
    page = out / "report.html"
    write_page(
        page,
        title="Test-time adaptation",
        lead=lead(rows, comparison),
        tables=[*([accuracy_table(comparison)] if comparison else []), answers_table(rows)],
        pictures=[
            Picture("Share of the answer's votes, before and after", shares),
            Picture("Votes during training", votes),
            Picture("Size of the majority", majority),
            Picture("Training", training),
        ],
    )
    return page


def lead(rows: Sequence[Prediction], comparison: Comparison | None) -> str:
    """The result in one or two sentences."""
    changed = sum(row.changed for row in rows)
    text = f"{len(rows)} answers, {changed} of them changed by the adaptation."
    if comparison is None:
        return text
    return (
        f"{text} With gold: maj@{comparison.k} went from {comparison.majority_before:.1%} (base model) to "
        f"{comparison.majority_after:.1%}, pass@1 from {comparison.pass_before:.1%} to {comparison.pass_after:.1%}; "
        f"{len(comparison.solved)} problems newly solved, {comparison.kept} kept, {len(comparison.lost)} lost."
    )


def accuracy_table(found: Comparison) -> Table:
    """Base against adapted; the base model's majority is what an adaptation must beat to be worth anything."""
    rows = [
        ["base model", f"{found.pass_before:.1%}", f"{found.majority_before:.1%}"],
        ["adapted model", f"{found.pass_after:.1%}", f"{found.majority_after:.1%}"],
    ]
    return Table(f"Accuracy on the {found.problems} problems", ["policy", "pass@1", f"maj@{found.k}"], rows)


def answers_table(rows: Sequence[Prediction]) -> Table:
    """The answers that changed first, then the least sure."""
    ordered = sorted(rows, key=lambda row: (not row.changed, row.vote_share))[:SHOWN]
    cells = [
        [
            str(row.id),
            row.answer or "–",
            f"{row.vote_share:.0%}",
            row.runner_up or "–",
            f"{row.runner_up_share:.0%}",
            row.before or "–",
            f"{row.before_share:.0%}",
        ]
        for row in ordered
    ]
    part = "" if len(rows) <= SHOWN else f": those that changed, then the least sure ({SHOWN} of {len(rows)})"
    return Table(f"Answers{part}", ["id", "answer", "votes", "runner-up", "votes", "before", "votes"], cells)


def draw_shares(rows: Sequence[Prediction]) -> Figure:
    """Each problem's vote share before (horizontal) and after (vertical); changed answers stand out."""
    figure = Figure(figsize=(5, 5), layout="constrained")
    axes = figure.subplots()
    for changed, label, marker in ((False, "same answer", "o"), (True, "changed answer", "X")):
        points = [(row.before_share, row.vote_share) for row in rows if row.changed is changed]
        if points:
            axes.scatter(*zip(*points, strict=True), label=label, marker=marker, alpha=0.6)
    axes.plot([0, 1], [0, 1], linestyle="--", color="gray", linewidth=1)
    axes.set(xlabel="share of votes before", ylabel="share of votes after", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    axes.legend()
    return figure
