"""Tables of runs by benchmarks beside published rows of the same models, as text, and how the two differ."""

import csv
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from pydantic import BaseModel

from restrain_openrlhf.data.benchmarks import BENCHMARKS
from restrain_openrlhf.evaluation.job import PROTOCOLS
from restrain_openrlhf.evaluation.result import EvaluationProvenance, Result
from restrain_openrlhf.records.folder import RunFolder

FILE = Path(__file__).with_name("paper.csv")
# Rows of other papers, which compare RESTRAIN with other methods; SOURCES says how each measured.
OTHERS = FILE.with_name("other_papers.csv")
TEST_TIME = "test-time"
PAPER = "paper"
SOURCES = {
    "GMAE": "arXiv 2609.36750, all rows by its authors, also RESTRAIN's: 211 steps of 64 prompts x 16 (of 32), "
    "on verl with its own prompts; T 0.6, top-p 0.95, top-k 20, mean of 16; the checkpoint chosen by gold (DAPO-500); "
    "its AMC is taken for the 83 problems, because 24.3 % cannot come from 40 problems x 16 responses",
    "SCRL": "arXiv 2603.19880, read from a summary: its prompts, steps and checkpoint are not known here. Its rows of "
    "RESTRAIN and TTRL are the RESTRAIN paper's own (Table 3), so the comparison is not independent",
}


class PaperCell(BaseModel, frozen=True):
    """One printed number, in per cent, or in points for a difference.

    `row` and `column` are as printed, and `model` is a hub id; `method`, `ablation`, `benchmark` and `protocol` are
    names of this project. `training` is the training set, `test-time` in Table 3, and None for a base model. `ablation`
    is a preset in configs/ablations, and None if the row has the paper's default settings. `source` is the paper
    itself, or a key of SOURCES. `table` is None where only a summary was read.
    """

    source: str = PAPER
    table: int | None
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


@cache
def every_cell() -> tuple[PaperCell, ...]:
    """All cells: accuracies, the differences and relative gains that the paper prints, and rows of other papers."""
    cells: list[PaperCell] = []
    for path in (FILE, OTHERS):
        with path.open(encoding="utf-8", newline="") as file:
            rows = ({name: text or None for name, text in row.items()} for row in csv.DictReader(file))
            cells += map(PaperCell.model_validate, rows)
    return tuple(cells)


def accuracies(source: str | None = PAPER) -> list[PaperCell]:
    """The cells of pass@1 in one source, or in all of them for None."""
    return [cell for cell in every_cell() if cell.metric == "pass@1" and source in (None, cell.source)]


def models() -> list[str]:
    return list(dict.fromkeys(cell.model for cell in accuracies()))


@dataclass(frozen=True)
class PaperLine:
    """One row of a paper, from one table or from several that agree, with its values by benchmark."""

    source: str
    tables: tuple[int | None, ...]
    row: str
    training: str | None
    values: Mapping[str, float]

    @property
    def name(self) -> str:
        name = self.row.removesuffix(" (Ours)")
        if self.training is None:
            return name
        return f"{name}, at test time" if self.training == TEST_TIME else f"{name}, on {self.training}"

    @property
    def origin(self) -> str:
        """`paper, Table 3`, `paper, Tables 1, 4 and 5`, `GMAE, Table 1`, `SCRL`."""
        if self.tables == (None,):
            return self.source
        *others, last = map(str, self.tables)
        return f"{self.source}, Tables {', '.join(others)} and {last}" if others else f"{self.source}, Table {last}"

    def agrees(self, values: Mapping[str, float]) -> bool:
        return all(values.get(name, was) == was for name, was in self.values.items())


def lines_of(model: str, benchmarks: Collection[str]) -> list[PaperLine]:
    """The published rows of a model for these benchmarks, one for each method and training set, without ablations.

    A row that two tables print with different numbers becomes two lines.
    """
    asked = [each for each in accuracies(None) if each.model == model and each.benchmark in benchmarks]
    cells = [cell for cell in asked if cell.ablation is None]
    lines: dict[tuple[str, str | None, str], list[PaperLine]] = {}
    for table, rows in groupby(cells, key=lambda cell: (cell.source, cell.table, cell.row, cell.training, cell.method)):
        source, number, row, training, method = table
        values = {cell.benchmark: cell.value for cell in rows}
        alike = lines.setdefault((source, training, method), [])
        same = next((place for place, line in enumerate(alike) if line.agrees(values)), None)
        if same is None:
            alike.append(PaperLine(source, (number,), row, training, values))
        else:
            old = alike[same]
            alike[same] = replace(old, tables=(*old.tables, number), values={**old.values, **values})
    return [line for alike in lines.values() for line in alike]


def base_of(model: str) -> str:
    """The model from which a model was trained, according to its run's folder; itself where it is in no run's folder.

    Raises DataError if the folder's run.json cannot be read.
    """
    run = RunFolder.holding(model)
    return model if run is None else str(run.flags()["actor.model_name_or_path"])


def what_differs(model: str, how: EvaluationProvenance) -> Iterator[str]:
    """The ways in which the paper's measurements of this model and benchmark differ from ours."""
    cells = [cell for cell in accuracies() if cell.model == model and cell.benchmark == how.benchmark]
    if not cells:
        if model in models():
            yield f"the paper has no {how.benchmark} of {model}"
        else:
            yield f"the paper has no numbers of {model}; its models are {', '.join(models())}"
        return
    cell, responses = cells[0], PROTOCOLS[cells[0].protocol].n
    if (how.protocol, how.n) != (cell.protocol, responses):
        theirs = f"the paper's by {cell.protocol} with {responses}"
        yield f"ours by protocol {how.protocol} with {how.n} responses, {theirs}"
    # Of several known numbers of problems, the last is that of Qwen2.5-Math's copy, which the paper uses.
    if (problems := BENCHMARKS[how.benchmark].sizes[-1]) != how.problems:
        yield f"ours of {how.problems} problems, the paper's taken as of {problems}"
    if cell.column == "AMC23" and cell.benchmark == "amc83":
        yield "printed as AMC23; taken as the 83 problems of the TTRL line"


@dataclass(frozen=True)
class Table:
    """A table of text: a row for each run and each published row, of its name, its origin, and a cell for each column.

    The columns are benchmarks and their mean. An origin is `ours`, or a source with its tables. `notes` says how the
    numbers were measured, how the paper's measurements differ, and what the paper lacks.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def build_table(runs: Mapping[str, Sequence[Result]], base: str | None = None) -> Table:
    """The table of the named runs, followed by the paper's rows of the models from which they were trained.

    `base` names that model where the folders of the runs do not.
    """
    every = [result.provenance for results in runs.values() for result in results]
    titles = {how.benchmark: how.title for how in every}
    bases = {how.model: base or base_of(how.model) for how in every}
    rows = [_ours(name, results, titles) for name, results in runs.items()]
    published = list(_published(list(dict.fromkeys(bases.values())), titles))
    others = {origin.partition(",")[0] for _, origin, *_ in published}
    measured = (f"{source}: {how}" for source, how in SOURCES.items() if source in others)
    return Table((*titles.values(), "mean"), (*rows, *published), (*_notes(runs, bases), *measured))


def _ours(name: str, results: Sequence[Result], benchmarks: Collection[str]) -> tuple[str, ...]:
    """Our numbers in per cent with their 95 % bounds, which the paper's, and means over benchmarks, do not have."""
    scores = {result.provenance.benchmark: result.scores for result in results}
    values = {key: 100 * of.pass_at_1 for key, of in scores.items()}
    bounds = {key: f" [{100 * of.low:.1f}, {100 * of.high:.1f}]" for key, of in scores.items()}
    return _row(name, "ours", values, benchmarks, bounds)


def _row(
    name: str,
    origin: str,
    values: Mapping[str, float],
    benchmarks: Collection[str],
    bounds: Mapping[str, str] = MappingProxyType({}),
) -> tuple[str, ...]:
    """A row with the mean over benchmarks, which is left out where a number is missing."""
    cells = [f"{values[key]:.1f}{bounds.get(key, '')}" if key in values else "–" for key in benchmarks]
    found = [values[key] for key in benchmarks if key in values]
    mean = f"{sum(found) / len(found):.1f}" if len(found) == len(benchmarks) else "–"
    return name, origin, *cells, mean


def _published(models: Sequence[str], benchmarks: Collection[str]) -> Iterator[tuple[str, ...]]:
    """All published rows of these models that have one of these benchmarks; of several models, with their names."""
    rows = [(model, line) for model in models for line in lines_of(model, benchmarks)]
    several = len({model for model, _ in rows}) > 1
    for model, line in rows:
        short = f"{model.rpartition('/')[-1]}: " if several and line.training else ""
        yield _row(f"{short}{line.name}", line.origin, line.values, benchmarks)


def _notes(runs: Mapping[str, Sequence[Result]], bases: Mapping[str, str]) -> Iterator[str]:
    """How each run was measured, then a line for each run and difference from the paper, with the benchmarks."""
    every = [(name, result.provenance) for name, results in runs.items() for result in results]
    yield from dict.fromkeys(_how(name, how) for name, how in every)
    about: dict[tuple[str, str], list[str]] = {}
    for name, how in every:
        for note in what_differs(bases[how.model], how):
            about.setdefault((name, note), []).append(how.title)
    for (name, note), titles in about.items():
        yield f"{name}, {', '.join(dict.fromkeys(titles))}: {note}"


def _how(name: str, how: EvaluationProvenance) -> str:
    return (
        f"{name}: {how.model}, protocol {how.protocol} (n {how.n}, T {how.temperature:g}, top-p {how.top_p:g}, up to "
        f"{how.max_new_tokens} tokens), template {how.template}"
    )


def as_markdown(table: Table) -> str:
    """The table, with its numbers aligned right, followed by its notes."""
    header, rule = ["run", "", *table.columns], ["---", "---", *["---:"] * len(table.columns)]
    text = "".join(f"| {' | '.join(cells)} |\n" for cells in [header, rule, *table.rows])
    notes = ["pass@1 in per cent [95 % interval]", *table.notes]
    return text + "\n" + "".join(f"- {note}\n" for note in notes)
