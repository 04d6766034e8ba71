"""Ours and the paper's numbers, cell by cell: the difference, and whether their intervals overlap."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from restrain_openrlhf.evaluation.estimators import wilson_interval
from restrain_openrlhf.evaluation.published import (
    HALF_A_DIGIT,
    MEAN,
    TEST_TIME,
    PaperCell,
    Subject,
    accuracies,
    models,
    row_words,
    subject_of,
    tables_words,
)
from restrain_openrlhf.evaluation.result import EvaluationProvenance, Result


@dataclass(frozen=True)
class Estimate:
    """pass@1 in per cent and its bounds at 95 %, of `responses` to each of `problems`; a mean over sets has none."""

    value: float
    low: float | None = None
    high: float | None = None
    problems: int | None = None
    responses: int | None = None


@dataclass(frozen=True)
class Comparison:
    """One benchmark of one run beside one number of the paper; that may be missing, and `notes` say why.

    `difference`: ours minus the paper's, in points. `overlap`: of the two intervals.
    """

    run: str
    benchmark: str
    title: str
    row: str | None
    tables: tuple[int, ...]
    ours: Estimate
    paper: Estimate | None
    difference: float | None
    overlap: bool | None
    notes: tuple[str, ...]


def compare(runs: Mapping[str, Sequence[Result]], given: Subject) -> list[Comparison]:
    """Every result of the named runs beside what the paper has of the same model, method and training."""
    return [found for name, results in runs.items() for found in _of_run(name, results, given)]


def _of_run(name: str, results: Sequence[Result], given: Subject) -> Iterator[Comparison]:
    by_subject: dict[Subject, dict[str, Result]] = {}
    for result in results:
        by_subject.setdefault(subject_of(result.provenance, given), {})[result.provenance.benchmark] = result
    for subject, found in by_subject.items():
        cells = counterparts(subject)
        for benchmark, result in found.items():
            how, ours = result.provenance, ours_of(result)
            groups = _equal_cells(cell for cell in cells if cell.benchmark == benchmark)
            for group in groups or [[]]:
                notes = _notes(group, groups, how) if group else [why_none(subject, how)]
                yield _beside(name, benchmark, how.title, ours, group, notes)
        yield from _means(name, found, cells)


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


def _beside(
    run: str, benchmark: str, title: str, ours: Estimate, cells: Sequence[PaperCell], notes: Iterable[str]
) -> Comparison:
    """Ours beside the one number that all of `cells` print, or beside none."""
    paper = papers_estimate(cells[0]) if cells else None
    return Comparison(
        run=run,
        benchmark=benchmark,
        title=title,
        row=row_words(cells[0].row, cells[0].training) if cells else None,
        tables=tuple(cell.table for cell in cells),
        ours=ours,
        paper=paper,
        difference=ours.value - paper.value if paper else None,
        overlap=overlap(ours, paper) if paper else None,
        notes=tuple(notes),
    )


def _equal_cells(cells: Iterable[PaperCell]) -> list[list[PaperCell]]:
    """The cells that several tables print alike are one number."""
    groups: dict[tuple[str | None, float], list[PaperCell]] = {}
    for cell in cells:
        groups.setdefault((cell.training, cell.value), []).append(cell)
    return list(groups.values())


def ours_of(result: Result) -> Estimate:
    """Of a result, in per cent."""
    scores, how = result.scores, result.provenance
    return Estimate(100 * scores.pass_at_1, 100 * scores.low, 100 * scores.high, how.problems, how.n)


def papers_estimate(cell: PaperCell) -> Estimate:
    """With Wilson's interval of a share of so many problems, which bounds that of 16 responses each.

    With p_i the chance of problem i, the mean's variance over problems and responses is at most p (1 − p) / problems.
    """
    if cell.problems is None:
        return Estimate(cell.value)
    low, high = wilson_interval(cell.value * cell.problems / 100, cell.problems)
    return Estimate(cell.value, 100 * low, 100 * high, cell.problems, cell.responses)


def overlap(one: Estimate, other: Estimate) -> bool | None:
    """Whether two intervals have a number in common; None where one of them has no bounds."""
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return None
    return one.low <= other.high and other.low <= one.high


def _notes(
    group: Sequence[PaperCell], groups: Sequence[Sequence[PaperCell]], how: EvaluationProvenance
) -> Iterator[str]:
    cell = group[0]
    for other in groups:
        if other is not group and other[0].training == cell.training:
            yield f"the paper also prints {other[0].value:g} ({tables_words([each.table for each in other])})"
    if (how.protocol, how.n) != (cell.protocol, cell.responses):
        theirs = f"the paper's by {cell.protocol} with {cell.responses}"
        yield f"ours by protocol {how.protocol} with {how.n} responses, {theirs}"
    if cell.problems != how.problems:
        yield f"ours of {how.problems} problems, the paper's taken as of {cell.problems}"
    if cell.column == "AMC23" and cell.benchmark == "amc83":
        yield "printed as AMC23; taken as the 83 problems of the TTRL line"
    if not cell.is_a_share:
        yield f"{cell.value:g} is the share of no whole number of {cell.problems} × {cell.responses} responses"
    if cell.training == TEST_TIME:
        yield "the paper's is adapted to this benchmark itself"


def why_none(subject: Subject, how: EvaluationProvenance) -> str:
    """Why the paper has no number for this benchmark of this subject."""
    if subject.base is None or subject.method is None:
        return (
            f"it is not known what {how.model} is: it lies in no run's folder. Say it with --base, --method and "
            "--data, or by labels of `restrain eval` of these names"
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
    hint = "; its test-time column AMC23 is compared with amc83" if how.benchmark == "amc23" else ""
    return f"the paper has no {how.benchmark} of {what} of {subject.base}{hint}"


def _means(name: str, found: Mapping[str, Result], cells: Sequence[PaperCell]) -> Iterator[Comparison]:
    """The paper's averages over benchmarks that were all evaluated here."""
    for averages in _equal_cells(cell for cell in cells if cell.benchmark == MEAN):
        row = _beside_average(averages[0], cells)
        if row.keys() <= found.keys():
            ours = Estimate(sum(100 * found[each].scores.pass_at_1 for each in row) / len(row))
            own = sum(row.values()) / len(row)
            # The cells are rounded too.
            wrong = abs(averages[0].value - own) > 2 * HALF_A_DIGIT
            notes = [f"the paper's own cells have the mean {own:.1f}"] if wrong else []
            yield _beside(name, MEAN, f"mean of {len(row)}", ours, averages, notes)


def _beside_average(average: PaperCell, cells: Iterable[PaperCell]) -> dict[str, float]:
    """The accuracies of the average's own row, by benchmark."""
    same = [cell for cell in cells if (cell.table, cell.row, cell.model) == (average.table, average.row, average.model)]
    return {cell.benchmark: cell.value for cell in same if cell.benchmark != MEAN}
