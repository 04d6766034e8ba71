"""Tables of results as text: Markdown, LaTeX, CSV and JSON."""

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.evaluation.table import Cell, Table


def markdown(table: Table) -> str:
    """A Markdown table, and below it how it was made, with the notes."""
    head = [["run", "", *table.columns], ["---", "---", *["---:"] * len(table.columns)]]
    body = [[line.run, line.origin, *map(_words, line.cells)] for line in table.lines]
    rows = "".join(f"| {' | '.join(cells)} |\n" for cells in [*head, *body])
    return (
        rows
        + "\n"
        + "".join(f"- {text}\n" for text in ("pass@1 in per cent [95 % interval]", *table.how, *table.notes))
    )


def latex(table: Table) -> str:
    """A booktabs tabular; how it was made and the notes stand in comments."""
    head = [["run", "", *(_escape(column) for column in table.columns)]]
    body = [[_escape(line.run), line.origin, *map(_latex_cell, line.cells)] for line in table.lines]
    rows = [" & ".join(cells) + r" \\" for cells in [*head, *body]]
    columns = "l" * 2 + "r" * len(table.columns)
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule"]
    return "\n".join([*(f"% {text}" for text in (*table.how, *table.notes)), *lines, r"\end{tabular}"]) + "\n"


def comma_separated(table: Table) -> str:
    """One row per number: run, origin, benchmark, pass_at_1, low, high."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", "origin", "benchmark", "pass_at_1", "low", "high"])
    for line in table.lines:
        for column, cell in zip(table.columns, line.cells, strict=True):
            if cell is not None:
                writer.writerow([line.run, line.origin, column, *map(_number, (cell.value, cell.low, cell.high))])
    return text.getvalue()


def as_json(table: Table) -> str:
    """The table as it is, with how it was made and the notes."""
    return json.dumps(asdict(table), indent=2, ensure_ascii=False) + "\n"


FORMATS: Mapping[str, Callable[[Table], str]] = {
    "markdown": markdown,
    "latex": latex,
    "csv": comma_separated,
    "json": as_json,
}


def formatter(name: str) -> Callable[[Table], str]:
    """The format of that name. Raises ConfigError naming those there are."""
    if name not in FORMATS:
        raise ConfigError(f"--format {name!r}: is no format. Known: {', '.join(FORMATS)}.")
    return FORMATS[name]


def _words(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    return f"{cell.value:.1f}" if cell.low is None else f"{cell.value:.1f} [{cell.low:.1f}, {cell.high:.1f}]"


def _latex_cell(cell: Cell | None) -> str:
    if cell is None:
        return "--"
    return (
        f"{cell.value:.1f}"
        if cell.low is None
        else rf"{cell.value:.1f} {{\scriptsize [{cell.low:.1f}, {cell.high:.1f}]}}"
    )


def _escape(text: str) -> str:
    for sign in r"&%$#_{}":
        text = text.replace(sign, f"\\{sign}")
    return text


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
