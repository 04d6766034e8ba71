"""Tables like the paper's, runs by benchmarks, in Markdown, LaTeX and CSV, beside numbers given from elsewhere."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.errors import ConfigError, DataError
from restrain_openrlhf.evaluation.result import Result, load_results

Paper = Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class Cell:
    """pass@1 in per cent, with its interval where it is ours and of one benchmark."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Line:
    """One run's numbers, by column; None where there is none. `origin` is `ours` or `paper`."""

    run: str
    origin: str
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class Table:
    """Columns are benchmarks' titles and the mean over them; `how` says with what the numbers were made."""

    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    how: tuple[str, ...]


def build_table(runs: Sequence[tuple[str, Path]], paper: Paper) -> Table:
    """The results of (name, folder) runs; a paper's line stands below the run of the same name."""
    results = {name: {result.provenance.benchmark: result for result in load_results(folder)} for name, folder in runs}
    if len(results) != len(runs):
        raise ConfigError("Two runs have one name. Tell them apart: NAME=FOLDER.")
    titles = {key: result.provenance.title for found in results.values() for key, result in found.items()}
    lines: list[Line] = []
    for name, found in results.items():
        lines.append(_line(name, "ours", [_ours(found.get(key)) for key in titles]))
        printed = [Cell(paper[name, key]) if (name, key) in paper else None for key in titles]
        if any(printed):
            lines.append(_line(name, "paper", printed))
    how = dict.fromkeys(_how(name, result) for name, found in results.items() for result in found.values())
    return Table((*titles.values(), "mean"), tuple(lines), tuple(how))


def _ours(result: Result | None) -> Cell | None:
    if result is None:
        return None
    scores = result.scores
    return Cell(100 * scores.pass_at_1, 100 * scores.low, 100 * scores.high)


def _line(name: str, origin: str, cells: Sequence[Cell | None]) -> Line:
    """With the mean over benchmarks, which is left out where one is missing."""
    values = [cell.value for cell in cells if cell is not None]
    mean = Cell(sum(values) / len(values)) if values and len(values) == len(cells) else None
    return Line(name, origin, (*cells, mean))


def _how(name: str, result: Result) -> str:
    how = result.provenance
    return (
        f"{name}: {how.model}, protocol {how.protocol} (n {how.n}, T {how.temperature:g}, top-p {how.top_p:g}, up to "
        f"{how.max_new_tokens} tokens), template {how.template}"
    )


def read_paper(path: Path) -> Paper:
    """Numbers of a paper by (run, benchmark), in per cent. Raises DataError for a file of another form."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        return {(row["run"], row["benchmark"]): float(row["pass_at_1"]) for row in rows}
    except FileNotFoundError:
        raise DataError(f"{path}: no such file. Check the path.") from None
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path}: is not a CSV with the columns run, benchmark, pass_at_1 ({error}). Fix it; numbers in per cent."
        ) from None


def markdown(table: Table) -> str:
    """A Markdown table, and how it was made below it."""
    head = [["run", "", *table.columns], ["---", "---", *["---:"] * len(table.columns)]]
    body = [[line.run, line.origin, *map(_words, line.cells)] for line in table.lines]
    rows = "".join(f"| {' | '.join(cells)} |\n" for cells in [*head, *body])
    return rows + "\n" + "".join(f"- {text}\n" for text in ("pass@1 in per cent [95 % interval]", *table.how))


def latex(table: Table) -> str:
    """A booktabs tabular; how it was made stands in comments."""
    head = [["run", "", *(_escape(column) for column in table.columns)]]
    body = [[_escape(line.run), line.origin, *map(_latex_cell, line.cells)] for line in table.lines]
    rows = [" & ".join(cells) + r" \\" for cells in [*head, *body]]
    columns = "l" * 2 + "r" * len(table.columns)
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule"]
    return "\n".join([*(f"% {text}" for text in table.how), *lines, r"\end{tabular}"]) + "\n"


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


FORMATS: Mapping[str, Callable[[Table], str]] = {"markdown": markdown, "latex": latex, "csv": comma_separated}


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
