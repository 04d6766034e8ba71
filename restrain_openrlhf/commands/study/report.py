"""A study's table, as Markdown and as CSV, with its figures beside it."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from restrain_openrlhf.commands.study.figures import save_figures
from restrain_openrlhf.commands.study.plan import StudyRun
from restrain_openrlhf.commands.study.results import Curve, curves
from restrain_openrlhf.commands.study.votes import courses
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.records.collapse import Collapse

HEADER = (
    "group", "method", "seeds", "before", "after", "sd", "best", "at step", "steps", "majority share", "collapse step",
)  # fmt: skip


def write_study(runs: Sequence[StudyRun], out: Path, gold: Mapping[str, str] | None = None) -> None:
    """Write table.md, table.csv and the figures from the runs' files so far.

    `gold` has answers to the training prompts, by the problem's hash: the pictures then have maj@k by step. Raises
    RunError where no run has been evaluated yet, and DataError where gold has none of the runs' prompts.
    """
    found = curves(runs)
    if not found:
        raise RunError(f"{out}: no run has an evaluation yet, so there is nothing to report. Read the runs' logs.")
    rows = [accuracy_row(curve) for curve in found]
    lines = "".join(f"| {' | '.join(cells)} |\n" for cells in (HEADER, ["---"] * len(HEADER), *rows))
    (out / "table.md").write_text(f"## Held-out accuracy (pass@1)\n\n{lines}", encoding="utf-8")
    with (out / "table.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([HEADER, *rows])
    save_figures(found, courses(runs, gold), out)


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
        f"{curve.majority_share:.2f}",
        collapse_cell(curve.collapses),
    ]


def collapse_cell(collapses: Sequence[Collapse]) -> str:
    """Each seed's Model Collapse Step, or one word for all: "–" without a collapse, "?" with too few evaluations."""
    words = ["?" if not one.is_known else "–" if one.step is None else str(one.step) for one in collapses]
    return words[0] if len(set(words)) == 1 else ", ".join(words)
