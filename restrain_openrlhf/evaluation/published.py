"""The numbers that RESTRAIN's paper prints, cell by cell as in its nine tables, and what keeps ours apart from them."""

import csv
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from restrain_openrlhf.data.benchmarks import BENCHMARKS
from restrain_openrlhf.evaluation.protocol import PROTOCOLS
from restrain_openrlhf.evaluation.result import EvaluationProvenance
from restrain_openrlhf.records.folder import RunFolder

FILE = Path(__file__).with_name("paper.csv")
MEAN = "mean"
# A model as its makers published it, before any training of the paper's.
BASE = "base"
TEST_TIME = "test-time"
# What the cells are rounded to, in points.
HALF_A_DIGIT = 0.05
# A trained model lies in <run>/model, <run>/checkpoints/<one>, or in an adaptation's <out>/train/ below them.
LEVELS = 3


class PaperCell(BaseModel, frozen=True):
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
    metric: Literal["pass@1", "difference", "relative_gain"]
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
        rows = ({name: text or None for name, text in row.items()} for row in csv.DictReader(file))
        return tuple(map(PaperCell.model_validate, rows))


def accuracies() -> list[PaperCell]:
    """The cells that are accuracies."""
    return [cell for cell in every_cell() if cell.metric == "pass@1"]


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


def lines_of(model: str, benchmarks: Collection[str], with_ablations: bool = False) -> list[PaperLine]:
    """The paper's rows of a model, by these benchmarks alone: all methods with the paper's settings, then ablations.

    A row that two tables print with different numbers is two lines.
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
    """One line for a row that several tables print, unless they give different numbers."""
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


def base_of(model: str) -> str:
    """What an evaluated model was trained from, by the run whose folder it lies in; itself where it lies in none.

    Raises DataError where the run.json there cannot be read.
    """
    flags = (RunFolder(folder).flags() for folder in Path(model).absolute().parents[:LEVELS])
    return next((str(found["actor.model_name_or_path"]) for found in flags if found), model)


def subject_of(how: EvaluationProvenance, given: Subject) -> Subject:
    """From what the user gives, else the model's run folder.

    Raises ConfigError for a given method that there is none of, RunError for a run folder that cannot be read.
    """
    if given.method not in (None, BASE, *METHODS):
        known = f"{BASE} (no training), {', '.join(METHODS)}"
        raise ConfigError(f"--method {given.method!r}: is not a method. Known: {known}.")
    found = Subject()
    if None in (given.base, given.method, given.training):
        found = _of_run(Path(how.model)) or _of_hub_id(how.model)
    method = given.method or found.method
    same = method == found.method
    return Subject(
        base=given.base or found.base,
        method=method,
        training=given.training or found.training,
        ablation=found.ablation if same else None,
        own_settings=found.own_settings if same else False,
    )


def counterparts(subject: Subject) -> list[PaperCell]:
    """The paper's accuracies of the same model, method, ablation and, where it is known, training."""
    if subject.own_settings:
        return []
    return [
        cell
        for cell in accuracies()
        if (cell.model, cell.method, cell.ablation) == (subject.base, subject.method, subject.ablation)
        and subject.training in (None, cell.training)
    ]


def what_differs(cells: Sequence[PaperCell], how: EvaluationProvenance) -> Iterator[str]:
    """What keeps the paper's numbers of this benchmark, one or more, from being the same measurement as ours."""
    cell = cells[0]
    if (how.protocol, how.n) != (cell.protocol, cell.responses):
        theirs = f"the paper's by {cell.protocol} with {cell.responses}"
        yield f"ours by protocol {how.protocol} with {how.n} responses, {theirs}"
    if cell.problems != how.problems:
        yield f"ours of {how.problems} problems, the paper's taken as of {cell.problems}"
    if cell.column == "AMC23" and cell.benchmark == "amc83":
        yield "printed as AMC23; taken as the 83 problems of the TTRL line"
    for value in dict.fromkeys(each.value for each in cells if not each.is_a_share):
        yield f"{value:g} is the share of no whole number of {cell.problems} × {cell.responses} responses"
    if cell.training == TEST_TIME:
        yield "the paper's is adapted to this benchmark itself"


def why_none(subject: Subject, how: EvaluationProvenance) -> str:
    """Why the paper has no number for this benchmark of this subject."""
    if subject.base is None or subject.method is None:
        return (
            f"it is not known what {how.model} is: it lies in no run's folder. Say it with --base, --method and --data"
        )
    if subject.base not in models():
        return f"the paper has nothing on the model {subject.base}; it has {', '.join(models())}"
    if subject.own_settings:
        return f"the paper has no {subject.method} with these settings; `run.json` has them"
    same = counterparts(subject)
    what = " ".join(filter(None, (subject.method, subject.ablation)))
    if not same:
        trained = f" trained on {subject.training}" if subject.training else ""
        return f"the paper has no {what} of {subject.base}{trained}"
    hint = "; its test-time column AMC23 is shown for amc83" if how.benchmark == "amc23" else ""
    return f"the paper has no {how.benchmark} of {what} of {subject.base}{hint}"


def _of_hub_id(model: str) -> Subject:
    """A hub id is that model untrained; of a folder outside a run nothing is known."""
    is_hub_id = model in models() or (model.count("/") == 1 and not model.startswith(".") and not Path(model).exists())
    return Subject(model, BASE) if is_hub_id else Subject()


def _of_run(model: Path) -> Subject | None:
    """By the nearest run.json above a model's folder."""
    places = [folder / "run.json" for folder in model.absolute().parents[:LEVELS]]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        return None
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
        flags, settings = run["openrlhf"], parse_settings(run["method"])
        base = str(flags["actor.model_name_or_path"])
    except (ValueError, KeyError, TypeError, ConfigError) as error:
        raise RunError(
            f"{path}: cannot be read as the record of a run ({error}). Say what was evaluated with --base, --method "
            "and --data, or move the model out of that folder."
        ) from None
    ablation, own = _ablation(settings)
    return Subject(base, settings.name, _training(run, flags), ablation, own)


def _ablation(settings: CommonSettings) -> tuple[str | None, bool]:
    """RESTRAIN's ablation with these settings, and whether they are neither one's nor the paper's."""
    papers = [_method_of(path) for path in PAPERS_SETTINGS]
    if settings in papers or type(settings) is not type(papers[0]):
        return None, False
    name = next((path.stem for path in sorted(ABLATIONS.glob("*.yaml")) if _method_of(path) == settings), None)
    return name, name is None


@cache
def _method_of(preset: Path) -> CommonSettings:
    return load_run_config(preset).method


def _training(run: Mapping[str, Any], flags: Mapping[str, Any]) -> str | None:
    if Path(str(run.get("reference") or "")).name == VOTES_BEFORE:
        return TEST_TIME
    prompts = Path(str(flags.get("data.prompt_dataset") or ""))
    about = prompts.with_name(f"{prompts.stem}.about.json")
    if about.is_file():
        return str(json.loads(about.read_text(encoding="utf-8")).get("name"))
    stem = prompts.name.partition(".")[0]
    name = PROMPT_FILES.get(stem, stem)
    return name if name in TRAINING_SETS else None
