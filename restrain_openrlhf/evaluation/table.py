"""Tables of runs by benchmarks beside the paper's rows of the same models, as text, and how the two differ."""

import csv
import io
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from restrain_openrlhf.data.benchmarks import BENCHMARKS
from restrain_openrlhf.evaluation.job import PROTOCOLS
from restrain_openrlhf.evaluation.result import EvaluationProvenance, Result
from restrain_openrlhf.records.folder import RunFolder

FILE = Path(__file__).with_name("paper.csv")
MEAN = "mean"
# The method of a model that was not trained by the paper's authors.
BASE = "base"
TEST_TIME = "test-time"
# Levels from a trained model up to its run: <run>/model, <run>/checkpoints/<one>, or an adaptation's <out>/train/.
LEVELS = 3


class PaperCell(BaseModel, frozen=True):
    """One printed number, in per cent, or in points for a difference.

    `row` and `column` are as printed, and `model` is a hub id; `method`, `ablation`, `benchmark` and `protocol` are
    names of this project. `training` is the training set, `test-time` in Table 3, and None for a base model. `ablation`
    is a preset in configs/ablations, and None if the row has the paper's default settings.
    """

    table: int
    row: str
    model: str
    training: str | None
    method: str
    ablation: str | None
    protocol: str
    metric: Literal["pass@1", "difference", "relative_gain"]
    column: str
    benchmark: str
    value: float

    @property
    def problems(self) -> int | None:
        """The benchmark's number of problems.

        Of several counts it is that of Qwen2.5-Math's copy, which the paper uses.
        """
        return None if self.benchmark == MEAN else BENCHMARKS[self.benchmark].sizes[-1]

    @property
    def responses(self) -> int:
        return PROTOCOLS[self.protocol].n


@cache
def every_cell() -> tuple[PaperCell, ...]:
    """All cells of the file: accuracies, and the differences and relative gains that the tables print."""
    with FILE.open(encoding="utf-8", newline="") as file:
        rows = ({name: text or None for name, text in row.items()} for row in csv.DictReader(file))
        return tuple(map(PaperCell.model_validate, rows))


def accuracies() -> list[PaperCell]:
    return [cell for cell in every_cell() if cell.metric == "pass@1"]


def models() -> list[str]:
    return list(dict.fromkeys(cell.model for cell in accuracies()))


@dataclass(frozen=True)
class PaperLine:
    """One row of the paper, from one table or from several that agree, with its values by benchmark."""

    tables: tuple[int, ...]
    row: str
    training: str | None
    values: Mapping[str, float]


def lines_of(model: str, benchmarks: Collection[str], with_ablations: bool = False) -> list[PaperLine]:
    """The paper's rows of a model for these benchmarks: all methods with the paper's settings, then ablations.

    A row that two tables print with different numbers becomes two lines.
    """
    cells = [
        cell
        for cell in accuracies()
        if cell.model == model and cell.benchmark in benchmarks and (with_ablations or cell.ablation is None)
    ]
    rows: dict[tuple[str | None, ...], dict[int, list[PaperCell]]] = {}
    for cell in sorted(cells, key=lambda cell: cell.ablation is not None):
        tables = rows.setdefault((cell.training, cell.method, cell.ablation), {})
        tables.setdefault(cell.table, []).append(cell)
    return [line for tables in rows.values() for line in _joined(tables)]


def _joined(tables: Mapping[int, Sequence[PaperCell]]) -> list[PaperLine]:
    """One line for a row that several tables print, unless they print different numbers."""
    lines: list[PaperLine] = []
    for table, cells in tables.items():
        values = {cell.benchmark: cell.value for cell in cells}
        same = next(
            (line for line in lines if all(values.get(name, was) == was for name, was in line.values.items())), None
        )
        if same is None:
            lines.append(PaperLine((table,), cells[0].row, cells[0].training, values))
        else:
            joined = replace(same, tables=(*same.tables, table), values={**same.values, **values})
            lines[lines.index(same)] = joined
    return lines


def row_words(row: str, training: str | None) -> str:
    """The name of a row with its training set."""
    name = row.removesuffix(" (Ours)")
    if training is None:
        return name
    return f"{name}, at test time" if training == TEST_TIME else f"{name}, on {training}"


def tables_words(tables: Sequence[int]) -> str:
    """`Table 3`, `Tables 1, 4 and 5`."""
    numbers = [str(table) for table in tables]
    if len(numbers) == 1:
        return f"Table {numbers[0]}"
    return f"Tables {', '.join(numbers[:-1])} and {numbers[-1]}"


def base_of(model: str) -> str:
    """The model from which a model was trained, according to its run's folder; itself where it is in no run's folder.

    Raises DataError if the folder's run.json cannot be read.
    """
    flags = (RunFolder(folder).flags() for folder in Path(model).absolute().parents[:LEVELS])
    return next((str(found["actor.model_name_or_path"]) for found in flags if found), model)


def what_differs(model: str, how: EvaluationProvenance) -> Iterator[str]:
    """The ways in which the paper's measurements of this model and benchmark differ from ours."""
    cells = [cell for cell in accuracies() if cell.model == model and cell.benchmark == how.benchmark]
    if not cells:
        if model in models():
            yield f"the paper has no {how.benchmark} of {model}"
        else:
            yield f"the paper has no numbers of {model}; its models are {', '.join(models())}"
        return
    cell = cells[0]
    if (how.protocol, how.n) != (cell.protocol, cell.responses):
        theirs = f"the paper's by {cell.protocol} with {cell.responses}"
        yield f"ours by protocol {how.protocol} with {how.n} responses, {theirs}"
    if cell.problems != how.problems:
        yield f"ours of {how.problems} problems, the paper's taken as of {cell.problems}"
    if cell.column == "AMC23" and cell.benchmark == "amc83":
        yield "printed as AMC23; taken as the 83 problems of the TTRL line"
    if any(each.training == TEST_TIME for each in cells):
        yield "the paper's are adapted to this benchmark itself"


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
