"""Comparisons with the paper as text: Markdown, CSV and JSON."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.evaluation.compare import Comparison, Estimate
from restrain_openrlhf.evaluation.published import tables_words

INTERVALS = (
    "pass@1 in per cent with its interval at 95 %; the difference is ours minus the paper's, in points. Ours is the "
    "interval of `restrain eval`, over problems. The paper prints none: theirs is Wilson's for a share of as many "
    "trials as the benchmark has problems, the widest that any number of responses to each can have. Neither holds "
    "the spread between training seeds."
)


def markdown(found: Sequence[Comparison]) -> str:
    """A Markdown table with the notes numbered below it."""
    notes = list(dict.fromkeys(note for each in found for note in each.notes))
    head = [
        ["run", "benchmark", "ours", "paper", "difference", "intervals overlap", "the paper's row", "notes"],
        ["---", "---", "---:", "---:", "---:", "---", "---", "---"],
    ]
    body = [_markdown_row(each, notes) for each in found]
    rows = "".join(f"| {' | '.join(cells)} |\n" for cells in [*head, *body])
    numbered = "".join(f"- [{number}] {note}\n" for number, note in enumerate(notes, 1))
    return "\n".join(filter(None, (rows, f"{INTERVALS}\n", numbered)))


def _markdown_row(each: Comparison, notes: Sequence[str]) -> list[str]:
    where = f"{each.row} ({tables_words(each.tables)})" if each.row else "–"
    return [
        each.run,
        each.title,
        _words(each.ours),
        _words(each.paper),
        "–" if each.difference is None else f"{each.difference:+.1f}",
        {True: "yes", False: "no", None: "–"}[each.overlap],
        where,
        " ".join(f"[{notes.index(note) + 1}]" for note in each.notes),
    ]


def _words(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    if estimate.low is None:
        return f"{estimate.value:.1f}"
    return f"{estimate.value:.1f} [{estimate.low:.1f}, {estimate.high:.1f}]"


def as_json(found: Sequence[Comparison]) -> str:
    """A list of the comparisons, fields by their names here."""
    return json.dumps([asdict(each) for each in found], indent=2, ensure_ascii=False) + "\n"


def comma_separated(found: Sequence[Comparison]) -> str:
    """One row per comparison; fields of the two estimates as ours_value and so on."""
    text = io.StringIO()
    sides = [f"{side}_{field.name}" for side in ("ours", "paper") for field in fields(Estimate)]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", "benchmark", *sides, "difference", "overlap", "row", "tables", "notes"])
    for each in found:
        numbers = [_number(value) for side in (each.ours, each.paper) for value in _fields(side)]
        end = [_number(each.difference), {True: "yes", False: "no", None: ""}[each.overlap], each.row or ""]
        tables = " ".join(map(str, each.tables))
        writer.writerow([each.run, each.benchmark, *numbers, *end, tables, "; ".join(each.notes)])
    return text.getvalue()


def _fields(estimate: Estimate | None) -> list[float | None]:
    return [None if estimate is None else getattr(estimate, field.name) for field in fields(Estimate)]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.2f}"


FORMATS: Mapping[str, Callable[[Sequence[Comparison]], str]] = {
    "markdown": markdown,
    "csv": comma_separated,
    "json": as_json,
}


def formatter(name: str) -> Callable[[Sequence[Comparison]], str]:
    """The format of that name. Raises ConfigError naming those there are."""
    if name not in FORMATS:
        raise ConfigError(f"--format {name!r}: is no format. Known: {', '.join(FORMATS)}.")
    return FORMATS[name]
