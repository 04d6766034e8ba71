"""The numbers of the nine tables of RESTRAIN's paper, cell by cell, and how our measurements differ from them."""

import csv
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from restrain_openrlhf.data.benchmarks import BENCHMARKS
from restrain_openrlhf.evaluation.job import PROTOCOLS
from restrain_openrlhf.evaluation.result import EvaluationProvenance
from restrain_openrlhf.records.folder import RunFolder

FILE = Path(__file__).with_name("paper.csv")
MEAN = "mean"
# The method of a model that was not trained by the paper's authors.
BASE = "base"
TEST_TIME = "test-time"
# The largest rounding error of a cell, in points.
HALF_A_DIGIT = 0.05
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

    @property
    def is_a_share(self) -> bool:
        """Whether this number is the rounded share of a whole number of right responses under the protocol."""
        if self.problems is None:
            return True
        drawn = self.problems * self.responses
        right = round(self.value * drawn / 100)
        return abs(100 * right / drawn - self.value) <= HALF_A_DIGIT + 1e-9


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
    if odd := dict.fromkeys(f"{each.value:g}" for each in cells if not each.is_a_share):
        yield f"shares of no whole number of {cell.problems} × {cell.responses} responses: {', '.join(odd)}"
    if any(each.training == TEST_TIME for each in cells):
        yield "the paper's are adapted to this benchmark itself"
