"""Reads the test set from a file, the hub or a benchmark, checks it, and leaves out its answers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind
from restrain_openrlhf.data.benchmarks import BENCHMARKS, LoadedBenchmark, load_benchmark
from restrain_openrlhf.data.gold import PromptOnly
from restrain_openrlhf.data.jsonl import read_rows, write_rows
from restrain_openrlhf.data.problems import (
    PROBLEM_COLUMNS,
    Problem,
    choice_columns,
    lists_choices,
    with_options,
    without_kind,
)
from restrain_openrlhf.data.sources import FILES, HUB, HubSet, Row, column_of, has_column, load_rows, message_text
from restrain_openrlhf.errors import ConfigError, DataError, no_such_file

MOST_NAMED = 20
# What messages say about one problem, and about several, before their ids.
ID_TWICE = "id is there more than once", "ids are there more than once"
EMPTY = "problem is empty, that of the id", "problems are empty, those of the ids"
WITHOUT_ANSWER = "id is without an answer there", "ids are without an answer there"


@dataclass(frozen=True)
class Source:
    """A test set that a user named: a file, a benchmark (its copy in `folder`, else from the hub), or a hub data set.

    `column` holds the problem (None: the first existing one of problem, question, Question, input). `split` is that of
    a hub data set (None: test).
    """

    word: str
    column: str | None = None
    split: str | None = None
    folder: Path | None = None

    @property
    def is_benchmark(self) -> bool:
        return self.word in BENCHMARKS

    @property
    def is_hub_set(self) -> bool:
        if self.is_benchmark or Path(self.word).exists() or Path(self.word).suffix.lower() in FILES:
            return False
        return self.word.count("/") == 1 and not self.word.startswith((".", "/"))

    @property
    def name(self) -> str:
        return self.word if self.is_benchmark else Path(self.word).stem

    def load(self) -> LoadedBenchmark:
        """Load a known benchmark or a file with its answers. Raises DataError if that fails."""
        return load_benchmark(self.word, self.folder)


def load_problems(source: Source, kind: AnswerKind = MATHEMATICS, graded: bool = False) -> list[PromptOnly]:
    """Every problem, in the file's order, with its id and the columns that votes of its kind read, but no answer.

    If `graded`, the columns that belong to gold are included, which training must not get. Rows without ids are
    numbered from 1. Raises DataError naming all duplicate ids and all empty problems, and ConfigError for a column or a
    split that the source does not have.
    """
    _refuse_without_effect(source)
    if source.is_benchmark:
        problems = without_answers(source.load().problems, kind, graded)
    else:
        problems = _rows(source, kind, graded)
    if not problems:
        raise DataError(f"{source.word}: has no problems. Give a set with at least one.")
    twice = [one for one, count in Counter(problem.id for problem in problems).items() if count > 1]
    _refuse(source.word, twice, ID_TWICE, "Give every problem an id of its own.")
    empty = [problem.id for problem in problems if not problem.problem.strip()]
    _refuse(source.word, empty, EMPTY, "Fill in the problem, or remove its row.")
    return problems


def _refuse_without_effect(source: Source) -> None:
    if source.is_benchmark and source.column is not None:
        raise ConfigError(
            f"--column {source.column}: {source.word} is a benchmark, whose problems are known. Leave it out."
        )
    if source.split is not None and not source.is_hub_set:
        raise ConfigError(
            f"--split {source.split}: {source.word} is no data set of the hub (OWNER/NAME). Leave it out."
        )


def without_answers(problems: Sequence[Problem], kind: AnswerKind, graded: bool = False) -> list[PromptOnly]:
    """A benchmark's problems without answers, without hints in the text, and unless `graded` without gold's columns."""
    return [
        PromptOnly(id=each.id, problem=without_kind(each), row=kind.own_columns(each.row, graded)) for each in problems
    ]


def _rows(source: Source, kind: AnswerKind, graded: bool) -> list[PromptOnly]:
    rows = _read(source)
    numbered = not any(row.get("id") is not None for row in rows)
    return [_problem(source, row, number, numbered, kind, graded) for number, row in enumerate(rows, start=1)]


def _read(source: Source) -> Sequence[Row]:
    path = Path(source.word)
    if path.exists():
        return load_rows(None, source.word)
    if path.suffix.lower() in FILES:
        raise DataError(no_such_file(path))
    if source.is_hub_set:
        return load_rows(HubSet(source.word, split=source.split or "test"), HUB)
    raise DataError(
        f"{source.word!r}: is neither a file ({', '.join(FILES)}), nor a hub data set (OWNER/NAME), nor a benchmark. "
        f"Known benchmarks: {', '.join(BENCHMARKS)}."
    )


def _problem(source: Source, row: Row, number: int, numbered: bool, kind: AnswerKind, graded: bool) -> PromptOnly:
    where = f"{source.word}, row {number}"
    column = source.column or next((name for name in PROBLEM_COLUMNS if name in row), None)
    if column is None or not has_column(row, column):
        raise DataError(
            f"{where}: has no {column or 'problem'!r}; its columns are {', '.join(sorted(map(str, row)))}. Name the "
            "one that holds the problem with --column."
        )
    if not numbered and row.get("id") is None:
        raise DataError(f"{where}: has no id, and other rows have one. Give every row an id, or none.")
    text = message_text(column_of(row, column))
    if text is not None and not isinstance(text, str):
        raise DataError(
            f"{where}: {column!r} must be text, or a chat of one message by the user, but is {str(text)[:80]!r}. "
            "Correct it."
        )
    columns = kind.own_columns(row, graded)
    if columns.keys() & {"options", "choices"}:
        text = with_options(text or "", columns)
    elif choice_columns(row) and not lists_choices(text or ""):
        raise DataError(
            f"{where}: its choices are in {', '.join(choice_columns(row))}, but training sees only {column!r}, which "
            "does not contain them. Give them as a list in the column `options`, and set --answers choice, which puts "
            "them into the prompt."
        )
    return PromptOnly(id=str(number if numbered else row["id"]), problem=text or "", row=columns)


def instructed(problems: Sequence[PromptOnly], kind: AnswerKind) -> list[PromptOnly]:
    """The problems, each followed by the instruction of its kind; for mathematics, Qwen2.5-Math's to box the answer."""
    asked = (
        f"{each.problem.strip()}\n{kind.instruction_for(kind.row(each.problem, each.row))}".strip() for each in problems
    )
    return [each.model_copy(update={"problem": text}) for each, text in zip(problems, asked, strict=True)]


def keep_problems(path: Path, problems: Sequence[PromptOnly]) -> None:
    """Write the problems once. Raises DataError if `path` holds others, so that their results are not lost."""
    if not path.exists():
        write_rows(path, problems)
    elif read_rows(path, PromptOnly) != list(problems):
        raise DataError(f"{path}: holds the problems of another adaptation. Choose another --out.")


def refuse_missing_gold(name: str, ids: Sequence[str], gold: Mapping[str, str]) -> None:
    """Raises DataError naming every problem that has no gold answer."""
    missing = [one for one in ids if one not in gold]
    advice = "Add them: a row is found by its problem's text where it has one, and by its id else."
    _refuse(name, missing, WITHOUT_ANSWER, advice)


def _refuse(name: str, ids: Sequence[str], what: tuple[str, str], advice: str) -> None:
    """Raises DataError naming the ids of which `what` is said, if there are any."""
    if ids:
        counted = f"1 {what[0]}" if len(ids) == 1 else f"{len(ids)} {what[1]}"
        more = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
        raise DataError(f"{name}: {counted}: {', '.join(map(repr, ids[:MOST_NAMED]))}{more}. {advice}")
