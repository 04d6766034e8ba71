"""Loads benchmarks by name, or from any file, checks them row by row, and copies them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind
from restrain_openrlhf.data import problems as row_schemas
from restrain_openrlhf.data.gold import PromptOnly, stated_gold
from restrain_openrlhf.data.jsonl import AnyRow, write_rows
from restrain_openrlhf.data.problems import Problem, RowSchema
from restrain_openrlhf.data.prompt_reader import PromptReader, with_answer
from restrain_openrlhf.data.sources import HUB, HubSet, Row, load_rows, placed_rows_of
from restrain_openrlhf.errors import ConfigError, DataError, did_you_mean

GPQA_GATE = (
    "open huggingface.co/datasets/Idavidrein/gpqa, accept its terms while logged in, then run `hf auth login` with a "
    "token that may read gated sets (or set HF_TOKEN), and try again."
)


@dataclass(frozen=True)
class Benchmark:
    """A named benchmark.

    `schemas` says how its rows may look, the hub's first; `sizes` has its known numbers of problems. `hub` is None if
    it is published nowhere.
    """

    name: str
    title: str
    hub: HubSet | None
    sizes: tuple[int, ...] = ()
    schemas: tuple[RowSchema, ...] = (row_schemas.WORDED,)
    note: str = ""

    @property
    def licence(self) -> str:
        return self.hub.licence if self.hub else "–"


BENCHMARKS: Mapping[str, Benchmark] = {
    entry.name: entry
    for entry in (
        Benchmark("math500", "MATH-500", HubSet("HuggingFaceH4/MATH-500", split="test"), (500,)),
        Benchmark("amc23", "AMC23", HubSet("math-ai/amc23", split="test"), (40,)),
        Benchmark(
            "amc83",
            "AMC (83)",
            HubSet("AI-MO/aimo-validation-amc", licence="apache-2.0"),
            (83,),
            (row_schemas.AMC,),
            "AMC 12 of 2022 and 2023; what the TTRL line calls AMC",
        ),
        Benchmark("aime24", "AIME24", HubSet("HuggingFaceH4/aime_2024"), (30,)),
        Benchmark("aime25", "AIME25", HubSet("MathArena/aime_2025", licence="cc-by-nc-sa-4.0"), (30,)),
        Benchmark(
            "olympiadbench",
            "OlympiadBench",
            HubSet("Hothan/OlympiadBench", config="OE_TO_maths_en_COMP", licence="apache-2.0"),
            (674, 675),
            (row_schemas.OLYMPIAD, row_schemas.WORDED),
            "675 problems in Qwen2.5-Math's own copy",
        ),
        Benchmark("minerva_math", "Minerva", HubSet("math-ai/minervamath", split="test"), (272,)),
        Benchmark(
            "mmlu_stem",
            "MMLU-STEM",
            HubSet("hails/mmlu_no_train", config="all", split="test", licence="mit"),
            (3018,),
            (row_schemas.MMLU,),
            "the 18 subjects of Qwen2.5-Math's evaluation",
        ),
        Benchmark(
            "gpqa_diamond",
            "GPQA-Diamond",
            HubSet("Idavidrein/gpqa", config="gpqa_diamond", licence="cc-by-4.0", gate=GPQA_GATE),
            (198,),
            (row_schemas.GPQA,),
            "gated; the order of choices is ours",
        ),
        Benchmark(
            "s1k",
            "s1k (verifiable)",
            None,
            (893,),
            note="which 893 rows the paper has is not published: give them, if you have them, as s1k=FILE",
        ),
    )
}
# In the order of the paper's tables, without amc83, which is that of the TTRL line, and s1k, whose rows in the paper
# are unknown.
PAPER_BENCHMARKS = tuple(name for name in BENCHMARKS if name not in ("amc83", "s1k"))


@dataclass(frozen=True)
class LoadedBenchmark:
    """The problems of a benchmark and their source; `warning` where their number is not a known one.

    `read` says, of a file of the user's, what was read as what.
    """

    name: str
    title: str
    source: str
    problems: tuple[Problem, ...]
    warning: str | None = None
    kind: AnswerKind = MATHEMATICS
    read: str | None = None


def benchmark_words(text: str) -> tuple[str, ...]:
    """The words of a list of benchmarks, each of which `load_benchmark` reads.

    Raises ConfigError if there is none, one is named twice, or one's name cannot be that of a folder.
    """
    words = dict.fromkeys(word.strip() for word in text.split(",") if word.strip())
    names = [split_word(word)[0] for word in words]
    if not words or len(set(names)) != len(names):
        raise ConfigError(f"--benchmarks {text!r}: give one or more names, each once, such as aime24,math500.")
    for name in names:
        if not re.fullmatch(r"[\w-][\w.-]*", name):
            raise ConfigError(f"--benchmarks: {name!r} cannot name a folder. Use letters, digits, dots and dashes.")
    return tuple(words)


def load_benchmark(
    word: str, folder: Path | None = None, asked: AnswerKind | None = None, column: str | None = None
) -> LoadedBenchmark:
    """Load a benchmark by its name (from a copy in `folder`, else from the hub), by `NAME=PATH`, or by `PATH`.

    Answers are of the kind `asked`, or else mathematics. The problems of a file of the user's are as they are written;
    `column` has its prompts (data/prompt_reader.py).

    Raises DataError for an unknown name, a set that cannot be loaded, a wrong row, a repeated id, and an empty set.
    """
    name, path = split_word(word)
    if path is None and name not in BENCHMARKS:
        raise DataError(
            f"{word!r} is no known benchmark.{did_you_mean(name.replace('-', '_'), BENCHMARKS)} Known: "
            f"{', '.join(BENCHMARKS)}; for a file of your own give its path or NAME=PATH."
        )
    known = BENCHMARKS.get(name)
    kind = asked or MATHEMATICS
    own = row_schemas.PLAIN_MATHEMATICS if kind == MATHEMATICS else row_schemas.PLAIN
    schemas = known.schemas if known else (own,)
    place = _file_of(path) if path else _in_folder(name, folder)
    source = str(known.hub) if known and place == HUB else str(place)
    reader = None if known else PromptReader("--column", column)
    rows = list(placed_rows_of(known.hub if known else None, str(place)))
    problems = tuple(
        problem.model_copy(update={"row": {**kind.own_columns(row, graded=True), **problem.row}})
        for number, (where, row) in enumerate(rows)
        if (problem := _problem(f"{name} ({source}), {where}", reader, schemas, row, number))
    )
    _check(f"{name} ({source})", problems, len(rows), None if known else kind)
    title, sizes, warning = known.title if known else name, known.sizes if known else (), None
    if sizes and len(problems) not in sizes:
        usual = " or ".join(map(str, sizes))
        warning = f"{name}: {len(problems)} problems, {usual} in the known set: not comparable."
    return LoadedBenchmark(name, title, source, problems, warning, kind, reader.summary() if reader else None)


def is_own_file(word: str) -> bool:
    """Whether a word of the list of benchmarks names a file of the user's, and not a known benchmark, or its copy."""
    name, path = split_word(word)
    return path is not None and name not in BENCHMARKS


def split_word(word: str) -> tuple[str, Path | None]:
    """The name of a benchmark and the path of its file; None if the word has none."""
    name, equals, path = word.partition("=")
    if equals:
        return name, Path(path)
    if word in BENCHMARKS or not Path(word).suffix:
        return word, None
    return Path(word).stem, Path(word)


def _in_folder(name: str, folder: Path | None) -> Path | str:
    if folder is None:
        return HUB
    if place := copy_in(folder, name):
        return _file_of(place)
    raise DataError(
        f"{folder}: has no {name}.jsonl, .parquet or .csv, and no folder {name}. Put the file there, or leave out the "
        "folder."
    )


def copy_in(folder: Path, name: str) -> Path | None:
    """The copy of a benchmark in a folder, or None."""
    places = (folder / f"{name}{suffix}" for suffix in (".jsonl", ".parquet", ".csv", ""))
    return next((place for place in places if place.exists()), None)


def _file_of(path: Path) -> Path:
    """`path`, or the test.jsonl in it: Qwen2.5-Math's evaluation/data has a folder with that file for each set."""
    return path / "test.jsonl" if (path / "test.jsonl").is_file() else path


def _problem(
    where: str, reader: PromptReader | None, schemas: Sequence[RowSchema], row: Row, number: int
) -> Problem | None:
    """The problem of a row, read by the first schema that fits; with a `reader`, of a file of the user's.

    Raises DataError if none fits, or a value is wrong.
    """
    read = {**with_answer(row), "problem": reader.read(where, row)} if reader else row
    schema = next((schema for schema in schemas if schema.fits(read)), None)
    try:
        if schema is None:
            raise DataError(f"its columns are {', '.join(sorted(map(str, row)))}")
        return schema.read(read, number)
    except DataError as error:
        wanted = "; or ".join(map(str, schemas))
        raise DataError(f"{where}: {error}. Give rows with {wanted}.") from None


def _check(where: str, problems: tuple[Problem, ...], rows: int, kind: AnswerKind | None) -> None:
    if not problems:
        raise DataError(f"{where}: has no problems: none of its {rows} rows is one of the set. Give the whole set.")
    seen: set[str] = set()
    for problem in problems:
        if problem.id in seen:
            raise DataError(f"{where}: the id {problem.id!r} appears twice. Give every problem an id of its own.")
        if not problem.problem or not problem.answer:
            raise DataError(f"{where}: the problem {problem.id!r} has an empty text or answer. Fix or remove it.")
        if kind is not None:
            stated_gold(kind, problem.answer, f"{where}: the problem {problem.id!r}")
        seen.add(problem.id)


def copy_benchmark(name: str, folder: Path) -> Path:
    """Write `folder`/NAME.jsonl with the hub's rows, unless there is a copy. Either one is checked.

    Raises DataError for an unknown name, a set that cannot be downloaded, or a wrong row.
    """
    if place := copy_in(folder, name):
        load_benchmark(name, folder)
        return place
    load_benchmark(name)
    out = folder / f"{name}.jsonl"
    write_rows(out, (AnyRow.model_validate(row) for row in load_rows(BENCHMARKS[name].hub, HUB)))
    return out


def copy_problems(name: str, folder: Path) -> Path:
    """Write `folder`/NAME.jsonl with ids and problems, as test-time RL reads them, unless the file exists.

    Raises DataError; see `copy_benchmark`.
    """
    out = folder / f"{name}.jsonl"
    if not out.exists():
        problems = load_benchmark(name).problems
        write_rows(out, [PromptOnly(id=each.id, problem=each.problem) for each in problems])
    return out
