"""Tables of runs by benchmarks, like the paper's and with the paper's rows of the same models, as text."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from restrain_openrlhf.evaluation.published import PaperLine, base_of, lines_of, row_words, tables_words, what_differs
from restrain_openrlhf.evaluation.result import Result


@dataclass(frozen=True)
class Estimate:
    """pass@1 in per cent with 95 % bounds. The paper's numbers, and means over benchmarks, have no bounds."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class TableLine:
    """The numbers of one run by column; None if there is no number.

    `origin` is `ours`, or `paper` with its tables.
    """

    run: str
    origin: str
    cells: tuple[Estimate | None, ...]


@dataclass(frozen=True)
class Table:
    """A table whose columns are benchmarks and their mean; `how` says how the numbers were measured.

    `notes` says how the paper's measurements differ, and what the paper lacks.
    """

    columns: tuple[str, ...]
    lines: tuple[TableLine, ...]
    how: tuple[str, ...]
    notes: tuple[str, ...] = ()


def build_table(
    runs: Mapping[str, Sequence[Result]], base: str | None = None, with_paper: bool = True, with_ablations: bool = False
) -> Table:
    """The table of the named runs, followed by the paper's rows of the models from which they were trained.

    `base` names that model where the folders of the runs do not.
    """
    every = [result for results in runs.values() for result in results]
    titles = {result.provenance.benchmark: result.provenance.title for result in every}
    lines = []
    for name, results in runs.items():
        found = {result.provenance.benchmark: _ours(result) for result in results}
        lines.append(_line(name, "ours", [found.get(key) for key in titles]))
    how = dict.fromkeys(_how(name, result) for name, results in runs.items() for result in results)
    notes: list[str] = []
    if with_paper:
        bases = {result.provenance.model: base or base_of(result.provenance.model) for result in every}
        lines += _published_lines(list(dict.fromkeys(bases.values())), list(titles), with_ablations)
        notes = _notes(runs, bases)
    return Table((*titles.values(), "mean"), tuple(lines), tuple(how), tuple(notes))


def _published_lines(models: Sequence[str], benchmarks: Sequence[str], with_ablations: bool) -> list[TableLine]:
    """All rows of the paper for these models that have one of these benchmarks."""
    rows = [(model, line) for model in models for line in lines_of(model, benchmarks, with_ablations)]
    several = len({model for model, _ in rows}) > 1
    return [_published(line, model if several else None, benchmarks) for model, line in rows]


def _published(line: PaperLine, model: str | None, benchmarks: Sequence[str]) -> TableLine:
    name = row_words(line.row, line.training)
    if model and line.training:
        name = f"{model.rpartition('/')[-1]}: {name}"
    cells = [Estimate(line.values[key]) if key in line.values else None for key in benchmarks]
    return _line(name, f"paper, {tables_words(line.tables)}", cells)


def _notes(runs: Mapping[str, Sequence[Result]], bases: Mapping[str, str]) -> list[str]:
    """What the paper lacks and how it differs, with one line for each run and note that names the benchmarks."""
    about: dict[tuple[str, str], list[str]] = {}
    for name, how in ((name, result.provenance) for name, results in runs.items() for result in results):
        for note in what_differs(bases[how.model], how):
            about.setdefault((name, note), []).append(how.title)
    return [f"{name}, {', '.join(dict.fromkeys(titles))}: {note}" for (name, note), titles in about.items()]


def _ours(result: Result) -> Estimate:
    scores = result.scores
    return Estimate(100 * scores.pass_at_1, 100 * scores.low, 100 * scores.high)


def _line(name: str, origin: str, cells: Sequence[Estimate | None]) -> TableLine:
    """A line with the mean over benchmarks, which is left out where a number is missing."""
    values = [cell.value for cell in cells if cell is not None]
    mean = Estimate(sum(values) / len(values)) if values and len(values) == len(cells) else None
    return TableLine(name, origin, (*cells, mean))


def _how(name: str, result: Result) -> str:
    how = result.provenance
    return (
        f"{name}: {how.model}, protocol {how.protocol} (n {how.n}, T {how.temperature:g}, top-p {how.top_p:g}, up to "
        f"{how.max_new_tokens} tokens), template {how.template}"
    )


def text_of_table(table: Table, style: str) -> str:
    """The table as `markdown`, `csv` (with one row for each number) or `json`."""
    if style == "json":
        return json.dumps(asdict(table), indent=2, ensure_ascii=False) + "\n"
    if style == "csv":
        return _csv(
            {"run": line.run, "origin": line.origin, "benchmark": column, "pass_at_1": _number(cell.value)}
            | {"low": _number(cell.low), "high": _number(cell.high)}
            for line in table.lines
            for column, cell in zip(table.columns, line.cells, strict=True)
            if cell is not None
        )
    rows = [[line.run, line.origin, *map(_words, line.cells)] for line in table.lines]
    notes = ["pass@1 in per cent [95 % interval]", *table.how, *table.notes]
    return _markdown(["run", "", *table.columns], rows, range(2, 2 + len(table.columns)), notes)


def _words(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    if estimate.low is None:
        return f"{estimate.value:.1f}"
    return f"{estimate.value:.1f} [{estimate.low:.1f}, {estimate.high:.1f}]"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: range, notes: Iterable[str]) -> str:
    """A Markdown table, whose columns `numbers` are aligned right, followed by the notes."""
    rule = ["---:" if place in numbers else "---" for place in range(len(header))]
    text = "".join(f"| {' | '.join(cells)} |\n" for cells in [header, rule, *rows])
    return text + "\n" + "".join(f"- {note}\n" for note in notes)


def _csv(records: Iterable[Mapping[str, str]]) -> str:
    rows, text = list(records), io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
