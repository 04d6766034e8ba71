"""The numbers that RESTRAIN's paper prints, cell by cell as in its nine tables, and what they are numbers of."""

import csv
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from restrain_openrlhf.evaluation.benchmarks import BENCHMARKS
from restrain_openrlhf.evaluation.protocol import PROTOCOLS

FILE = Path(__file__).with_name("paper.csv")
MEAN = "mean"
# A model as its makers published it, before any training of the paper's.
BASE = "base"
TEST_TIME = "test-time"
# What the cells are rounded to, in points.
HALF_A_DIGIT = 0.05

Metric = Literal["pass@1", "difference", "relative_gain"]


@dataclass(frozen=True)
class PaperCell:
    """One printed number, in per cent (a difference: in points).

    `row` and `column` are as printed; `model` is a hub id; `method`, `ablation`, `benchmark` and `protocol` are names
    here. `training` is the training set, `test-time` in Table 3, and None for a base model. `ablation` is the preset in
    configs/ablations, None where the row has the paper's own settings.
    """

    table: int
    row: str
    model: str
    training: str | None
    method: str
    ablation: str | None
    protocol: str
    metric: Metric
    column: str
    benchmark: str
    value: float

    @property
    def problems(self) -> int | None:
        """How many the benchmark has: of several counts that of Qwen2.5-Math's copy, with which the paper evaluates."""
        return None if self.benchmark == MEAN else BENCHMARKS[self.benchmark].sizes[-1]

    @property
    def responses(self) -> int:
        """To each problem."""
        return PROTOCOLS[self.protocol].n

    @property
    def is_a_share(self) -> bool:
        """Whether some whole number of right responses, of as many as the protocol draws, is rounded to this number."""
        if self.problems is None:
            return True
        drawn = self.problems * self.responses
        right = round(self.value * drawn / 100)
        return abs(100 * right / drawn - self.value) <= HALF_A_DIGIT + 1e-9


@cache
def every_cell() -> tuple[PaperCell, ...]:
    """All of the file: accuracies, and the tables' own differences and relative gains."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return tuple(_cell(row) for row in csv.DictReader(file))


def accuracies() -> list[PaperCell]:
    """The cells that are accuracies."""
    return [cell for cell in every_cell() if cell.metric == "pass@1"]


def _cell(row: Mapping[str, str]) -> PaperCell:
    metric: Metric = "pass@1"
    if row["metric"] in ("difference", "relative_gain"):
        metric = "difference" if row["metric"] == "difference" else "relative_gain"
    return PaperCell(
        table=int(row["table"]),
        row=row["row"],
        model=row["model"],
        training=row["training"] or None,
        method=row["method"],
        ablation=row["ablation"] or None,
        protocol=row["protocol"],
        metric=metric,
        column=row["column"],
        benchmark=row["benchmark"],
        value=float(row["value"]),
    )


def models() -> list[str]:
    """Every model that the paper has numbers of."""
    return list(dict.fromkeys(cell.model for cell in accuracies()))


@dataclass(frozen=True)
class PaperLine:
    """One row of the paper, of one table or of several that agree; `values` are by benchmark."""

    tables: tuple[int, ...]
    row: str
    training: str | None
    values: Mapping[str, float]


def lines_of(model: str, training: str | None, ablation: str | None, benchmarks: Collection[str]) -> list[PaperLine]:
    """The paper's rows of a model, by these benchmarks alone: all methods with the paper's settings, and one ablation.

    `training`, where known, leaves out what was trained on something else. A row that two tables print with different
    numbers is two lines.
    """
    cells = [
        cell
        for cell in accuracies()
        if cell.model == model
        and cell.benchmark in benchmarks
        and (training is None or cell.training in (None, training))
        and cell.ablation in (None, ablation)
    ]
    return list(_joined(_rows(cells)))


def _rows(cells: Iterable[PaperCell]) -> dict[tuple[object, ...], list[PaperCell]]:
    rows: dict[tuple[object, ...], list[PaperCell]] = {}
    for cell in sorted(cells, key=lambda cell: cell.ablation is not None):
        rows.setdefault((cell.training, cell.method, cell.ablation, cell.table), []).append(cell)
    return rows


def _joined(rows: Mapping[tuple[object, ...], Sequence[PaperCell]]) -> Iterator[PaperLine]:
    """One line for a method that stands in several tables, unless the tables give different numbers."""
    lines: dict[tuple[object, ...], list[PaperLine]] = {}
    for key, cells in rows.items():
        found = lines.setdefault(key[:-1], [])
        values = {cell.benchmark: cell.value for cell in cells}
        place = next((number for number, line in enumerate(found) if _agree(line.values, values)), None)
        if place is None:
            found.append(PaperLine((cells[0].table,), cells[0].row, cells[0].training, values))
        else:
            line = found[place]
            found[place] = PaperLine((*line.tables, cells[0].table), line.row, line.training, {**line.values, **values})
    for found in lines.values():
        yield from found


def _agree(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    return all(one[name] == value for name, value in other.items() if name in one)


def row_words(row: str, training: str | None) -> str:
    """A row as printed, and on what it was trained."""
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
