"""A study's tables, as Markdown, CSV, and one HTML page with its figures."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from restrain_openrlhf.errors import RunError
from restrain_openrlhf.report.page import Picture, Table, write_page
from restrain_openrlhf.run.collapse import Collapse
from restrain_openrlhf.study.figures import save_figures
from restrain_openrlhf.study.plan import StudyRun
from restrain_openrlhf.study.results import Curve, Sweep, curves, sweeps
from restrain_openrlhf.study.votes import courses

HEADER = (
    "group", "method", "seeds", "before", "after", "sd", "best", "at step", "steps", "majority share", "collapse step",
)  # fmt: skip


def write_study(runs: Sequence[StudyRun], out: Path, gold: Mapping[str, str] | None = None) -> Path:
    """Write table.md, table.csv, the figures and report.html from the runs' files so far; returns the page.

    `gold` has answers to the training prompts, by the problem's hash: the pictures then have maj@k by step. Raises
    RunError where no run has been evaluated yet, and DataError where gold has none of the runs' prompts.
    """
    found = curves(runs)
    if not found:
        raise RunError(f"{out}: no run has an evaluation yet, so there is nothing to report. Read the runs' logs.")
    swept = sweeps(found)
    tables = [Table("Held-out accuracy (pass@1)", HEADER, [accuracy_row(curve) for curve in found])]
    tables += [sweep_table(sweep) for sweep in swept]
    write_markdown(out / "table.md", tables)
    write_csv(out / "table.csv", tables[0])
    pictures = [Picture(path.stem, path) for path in save_figures(found, swept, courses(runs, gold), out)]
    page = out / "report.html"
    write_page(page, "Study", lead(found), tables, pictures)
    return page


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


def sweep_table(sweep: Sweep) -> Table:
    """Final accuracy by value."""
    rows = [
        ["∞" if math.isinf(value) else f"{value:g}", f"{curve.mean[-1]:.1%}", f"{curve.deviation[-1]:.1%}"]
        for value, curve in sweep.points
    ]
    return Table(f"{sweep.group}: effect of {sweep.setting}", (sweep.setting, "pass@1", "sd"), rows)


def lead(found: Sequence[Curve]) -> str:
    """What the study compares, in one sentence."""
    groups = len({curve.group for curve in found})
    seeds = sorted({curve.seeds for curve in found})
    return (
        f"{len(found)} configurations in {groups} group{'s' if groups > 1 else ''}, "
        f"{' to '.join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))} seed(s) each."
    )


def write_markdown(path: Path, tables: Sequence[Table]) -> None:
    """All tables under their titles."""
    path.write_text("\n".join(_markdown(table) for table in tables), encoding="utf-8")


def _markdown(table: Table) -> str:
    lines = [table.header, ["---"] * len(table.header), *table.rows]
    return f"## {table.title}\n\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def write_csv(path: Path, table: Table) -> None:
    """One table."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([table.header, *table.rows])
