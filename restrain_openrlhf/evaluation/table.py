"""Tables like the paper's, runs by benchmarks, with the paper's own rows of the same models below."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.errors import ConfigError, DataError
from restrain_openrlhf.evaluation.compare import Comparison, compare
from restrain_openrlhf.evaluation.published import PaperLine, lines_of, row_words, tables_words
from restrain_openrlhf.evaluation.result import Result, load_results
from restrain_openrlhf.evaluation.subject import Said, subject_of

Paper = Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class Cell:
    """pass@1 in per cent, with its interval where it is ours and of one benchmark."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Line:
    """One run's numbers, by column; None where there is none. `origin` is `ours`, or `paper` with its tables."""

    run: str
    origin: str
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class Table:
    """Columns are benchmarks' titles and the mean over them; `how` says with what the numbers were made.

    `notes`: what the paper lacks, and what keeps its numbers from being the same measurement.
    """

    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    how: tuple[str, ...]
    notes: tuple[str, ...] = ()


def build_table(runs: Sequence[tuple[str, Path]], given: Paper | None = None, said: Said = Said()) -> Table:  # noqa: B008
    """The results of (name, folder) runs, and below them the paper's rows of the same models.

    `given` are other numbers in the place of the paper's: its line stands below the run of the same name.
    Raises ConfigError where two runs have one name, RunError for a folder without finished results.
    """
    results = {name: {result.provenance.benchmark: result for result in load_results(folder)} for name, folder in runs}
    if len(results) != len(runs):
        raise ConfigError("Two runs have one name. Tell them apart: NAME=FOLDER.")
    titles = {key: result.provenance.title for found in results.values() for key, result in found.items()}
    lines: list[Line] = []
    for name, found in results.items():
        lines.append(_line(name, "ours", [_ours(found.get(key)) for key in titles]))
        lines += _given_line(name, given or {}, list(titles))
    how = dict.fromkeys(_how(name, result) for name, found in results.items() for result in found.values())
    notes: list[str] = []
    if given is None:
        lines += _published_lines(results.values(), list(titles), said)
        notes = _notes(compare(runs, said))
    return Table((*titles.values(), "mean"), tuple(lines), tuple(how), tuple(notes))


def _given_line(name: str, given: Paper, benchmarks: Sequence[str]) -> list[Line]:
    printed = [Cell(given[name, key]) if (name, key) in given else None for key in benchmarks]
    return [_line(name, "paper", printed)] if any(printed) else []


def _published_lines(runs: Iterable[Mapping[str, Result]], benchmarks: Sequence[str], said: Said) -> list[Line]:
    """Every row of the paper once, of the runs' models, trainings and ablations, that has one of these benchmarks."""
    subjects = dict.fromkeys(subject_of(result.provenance, said) for found in runs for result in found.values())
    rows = {
        (subject.base, line.tables, line.row, line.training): line
        for subject in subjects
        if subject.base is not None
        for line in lines_of(subject.base, subject.training, subject.ablation, benchmarks)
    }
    several = len({base for base, *_ in rows}) > 1
    return [_published(line, base if several else None, benchmarks) for (base, *_), line in rows.items()]


def _published(line: PaperLine, model: str | None, benchmarks: Sequence[str]) -> Line:
    name = row_words(line.row, line.training)
    if model and line.training:
        name = f"{model.rpartition('/')[-1]}: {name}"
    cells = [Cell(line.values[key]) if key in line.values else None for key in benchmarks]
    return _line(name, f"paper, {tables_words(line.tables)}", cells)


def _notes(found: Iterable[Comparison]) -> list[str]:
    """One line a note and run, with the benchmarks that it is about."""
    about: dict[tuple[str, str], list[str]] = {}
    for each in found:
        for note in each.notes:
            about.setdefault((each.run, note), []).append(each.title)
    return [f"{run}, {', '.join(dict.fromkeys(titles))}: {note}" for (run, note), titles in about.items()]


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
