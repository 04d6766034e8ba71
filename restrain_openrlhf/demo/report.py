"""The demo's one-page report: accuracy before and after training, and the votes during training."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from matplotlib.figure import Figure

from restrain_openrlhf.evaluation.result import Accuracy
from restrain_openrlhf.report.curves import load_curves, save_run_figures
from restrain_openrlhf.report.page import Picture, Table, write_page

RESULT_FILE = "result.json"


@dataclass(frozen=True)
class MethodResult:
    """One method's result; a file beside its report, so that later reports can compare methods."""

    method: str
    before: Accuracy
    after: Accuracy

    def write(self, folder: Path) -> None:
        """Write it into the method's folder."""
        (folder / RESULT_FILE).write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "MethodResult":
        """The result that an earlier run wrote."""
        kept = json.loads(path.read_text(encoding="utf-8"))
        return cls(kept["method"], Accuracy(**kept["before"]), Accuracy(**kept["after"]))


def results_beside(folder: Path) -> list[MethodResult]:
    """Results of all methods in this demo folder, best first."""
    found = [MethodResult.read(path) for path in folder.parent.glob(f"*/{RESULT_FILE}")]
    return sorted(found, key=lambda result: -result.after.pass_at_1)


def write_report(folder: Path, method: str, run_dir: Path, before: Accuracy, after: Accuracy) -> Path:
    """Write report.html and its figures into `folder`; returns the page's path.

    It compares this method with those that ran in the same demo folder before.
    """
    MethodResult(method, before, after).write(folder)
    plots = folder / "plots"
    training, votes, speed, majority = save_run_figures([load_curves(run_dir)], plots)
    gain = plots / "gain.png"
    draw_gain(method, before, after).savefig(gain, dpi=120)
    page = folder / "report.html"
    write_page(
        page,
        title=f"{method} on held-out additions",
        lead=summary(method, before, after),
        tables=[_accuracy_table(before, after), _comparison(results_beside(folder))],
        pictures=[
            Picture("Held-out accuracy", gain),
            Picture("Votes during training", votes),
            Picture("Size of the majority", majority),
            Picture("Training", training),
            Picture("Times and speed", speed),
        ],
    )
    return page


def summary(method: str, before: Accuracy, after: Accuracy) -> str:
    """One sentence with the result."""
    return (
        f"{method}: pass@1 on {after.problems} held-out problems went from {before.pass_at_1:.1%} to "
        f"{after.pass_at_1:.1%} ({after.pass_at_1 - before.pass_at_1:+.1%}); the majority of {after.k} went from "
        f"{before.maj_at_k:.1%} to {after.maj_at_k:.1%}."
    )


def _accuracy_table(before: Accuracy, after: Accuracy) -> Table:
    def row(name: str, value: Accuracy) -> list[str]:
        problems = f"{value.low:.1%} to {value.high:.1%}"
        samples = "–" if value.samples_low is None else f"{value.samples_low:.1%} to {value.samples_high:.1%}"
        shares = (f"{share:.1%}" for share in (value.maj_at_k, value.missing_share))
        return [name, f"{value.pass_at_1:.1%}", problems, samples, *shares]

    header = ["policy", "pass@1", "95 % over problems", "95 % over samples", f"maj@{after.k}", "without an answer"]
    return Table("Held-out accuracy", header, [row("before", before), row("after", after)])


def _comparison(results: Sequence[MethodResult]) -> Table:
    rows = [
        [
            result.method,
            f"{result.before.pass_at_1:.1%}",
            f"{result.after.pass_at_1:.1%}",
            f"{result.after.pass_at_1 - result.before.pass_at_1:+.1%}",
            f"{result.after.maj_at_k:.1%}",
        ]
        for result in results
    ]
    return Table("Methods in this folder", ["method", "pass@1 before", "after", "gain", "majority after"], rows)


def draw_gain(method: str, before: Accuracy, after: Accuracy) -> Figure:
    """pass@1 and the majority's accuracy, before and after, with the intervals of pass@1 (thick: over samples)."""
    figure = Figure(figsize=(5, 4), layout="constrained")
    axes = figure.subplots()
    for offset, name, value in ((-0.2, "before", before), (0.2, "after", after)):
        heights = (value.pass_at_1, value.maj_at_k)
        error = [[value.pass_at_1 - value.low, 0], [value.high - value.pass_at_1, 0]]
        bars = axes.bar([offset, 1 + offset], heights, width=0.38, yerr=error, capsize=4, label=name)
        if value.samples_low is not None and value.samples_high is not None:
            axes.plot([offset] * 2, [value.samples_low, value.samples_high], color="black", linewidth=4)
        axes.bar_label(bars, fmt=lambda height: f"{height:.0%}", padding=3)
    axes.set(xticks=[0, 1], xticklabels=["pass@1", f"maj@{after.k}"], ylim=(0, 1.05), ylabel="held-out accuracy")
    axes.set_title(f"{method}, {after.problems} problems")
    axes.legend()
    return figure
