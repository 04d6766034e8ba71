"""Reads the test set from a file, the hub or a benchmark, checks it, and leaves out its answers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind
from restrain_openrlhf.data.benchmarks import BENCHMARKS, LoadedBenchmark, load_benchmark
from restrain_openrlhf.data.gold import PromptOnly
from restrain_openrlhf.data.jsonl import read_rows, write_rows
from restrain_openrlhf.data.problems import choice_columns, lists_choices, with_options, without_kind
from restrain_openrlhf.data.prompt_reader import PromptReader, TextOrChat, reworded, text_of
from restrain_openrlhf.data.sources import Row
from restrain_openrlhf.data.tables import SUFFIXES, is_table
from restrain_openrlhf.errors import ConfigError, DataError
from restrain_openrlhf.reference.prompts import PromptSource, all_rows

MOST_NAMED = 20


@dataclass(frozen=True)
class Source:
    """A test set that a user named: a file, or a benchmark (its copy in `folder`, else from the hub).

    `column` holds the problem (None: the only one with a known name).
    """

    word: str
    column: str | None = None
    folder: Path | None = None

    @property
    def is_benchmark(self) -> bool:
        return self.word in BENCHMARKS

    @property
    def is_file(self) -> bool:
        return Path(self.word).exists() or is_table(Path(self.word))

    @property
    def name(self) -> str:
        return self.word if self.is_benchmark else Path(self.word).stem

    def reader(self) -> PromptReader:
        return PromptReader("--column", self.column)

    def load(self) -> LoadedBenchmark:
        """Load a known benchmark or a file with its answers. Raises DataError if that fails."""
        return load_benchmark(self.word, self.folder)


def load_problems(
    source: Source, kind: AnswerKind = MATHEMATICS, graded: bool = False, reader: PromptReader | None = None
) -> list[PromptOnly]:
    """Every problem, in the file's order, with its id and the columns that votes of its kind read, but no answer.

    If `graded`, the columns that belong to gold are included, which training must not get. Rows without ids are
    numbered from 1. A `reader` knows afterwards what was read as what. Raises DataError naming all duplicate ids, and
    ConfigError for a column of a benchmark.
    """
    if source.is_benchmark and source.column is not None:
        raise ConfigError(
            f"--column {source.column}: {source.word} is a benchmark, whose problems are known. Leave it out."
        )
    if source.is_benchmark:
        return [
            PromptOnly(id=each.id, problem=without_kind(each), row=kind.own_columns(each.row, graded))
            for each in source.load().problems
        ]
    problems = _problems(source, kind, graded, reader or source.reader())
    if not problems:
        raise DataError(f"{source.word}: has no problems. Give a set with at least one.")
    twice = [one for one, count in Counter(problem.id for problem in problems).items() if count > 1]
    refuse(source.word, "has ids more than once", twice, "Give every problem an id of its own.")
    return problems


def _problems(source: Source, kind: AnswerKind, graded: bool, reader: PromptReader) -> list[PromptOnly]:
    if not source.is_file:
        raise DataError(
            f"{source.word!r}: is neither a file ({', '.join(SUFFIXES)}) nor a benchmark. Known benchmarks: "
            f"{', '.join(BENCHMARKS)}. Save a data set of the hub as a file."
        )
    rows = list(all_rows(PromptSource(source.word)))
    numbered = not any(row.get("id") is not None for _, row in rows)
    return [
        _problem(f"{source.word}, {place}", row, str(number) if numbered else row.get("id"), kind, graded, reader)
        for number, (place, row) in enumerate(rows, start=1)
    ]


def _problem(where: str, row: Row, row_id: object, kind: AnswerKind, graded: bool, reader: PromptReader) -> PromptOnly:
    if row_id is None:
        raise DataError(f"{where}: has no id, and other rows have one. Give every row an id, or none.")
    asked, columns = reader.read(where, row), kind.own_columns(row, graded)
    if columns.keys() & {"options", "choices"}:
        asked = with_options(asked, columns)
    elif choice_columns(row) and not lists_choices(text_of(asked)):
        raise DataError(
            f"{where}: its choices are in {', '.join(choice_columns(row))}, but training sees only the prompt, which "
            "does not contain them. Give them as a list in the column `options`, and set --answers choice, which puts "
            "them into the prompt."
        )
    return PromptOnly(id=str(row_id), problem=asked, row=columns)


def instructed(problems: Sequence[PromptOnly], kind: AnswerKind) -> list[PromptOnly]:
    """The problems, each followed by the instruction of its kind; for mathematics, Qwen2.5-Math's to box the answer."""
    return [each.model_copy(update={"problem": _instructed(each, kind)}) for each in problems]


def _instructed(problem: PromptOnly, kind: AnswerKind) -> TextOrChat:
    instruction = kind.instruction_for(kind.row(problem.text, problem.row))
    return reworded(problem.problem, lambda text: f"{text.strip()}\n{instruction}".strip())


def keep_problems(path: Path, problems: Sequence[PromptOnly]) -> None:
    """Write the problems once. Raises DataError if `path` holds others, so that their results are not lost."""
    if not path.exists():
        write_rows(path, problems)
    elif read_rows(path, PromptOnly) != list(problems):
        raise DataError(f"{path}: holds the problems of another adaptation. Choose another --out.")


def refuse(name: str, what: str, ids: Sequence[str], advice: str) -> None:
    """Raises DataError naming the ids of which `what` is said, if there are any."""
    if ids:
        more = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
        raise DataError(f"{name}: {what}: {', '.join(map(repr, ids[:MOST_NAMED]))}{more}. {advice}")
