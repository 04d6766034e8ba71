"""The paper's benchmarks, each with its place on the hub, its columns and its size; and files of one's own."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from restrain_openrlhf.data.sources import HUB, HubSet, load_rows
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.problems import Problem, Shape, gpqa, local, mmlu, olympiad, plain, verifiable

# The subjects Qwen2.5-Math's evaluation calls STEM.
STEM = frozenset(
    {
        "abstract_algebra",
        "astronomy",
        "college_biology",
        "college_chemistry",
        "college_computer_science",
        "college_mathematics",
        "college_physics",
        "computer_security",
        "conceptual_physics",
        "electrical_engineering",
        "elementary_mathematics",
        "high_school_biology",
        "high_school_chemistry",
        "high_school_computer_science",
        "high_school_mathematics",
        "high_school_physics",
        "high_school_statistics",
        "machine_learning",
    }
)
GPQA_GATE = (
    "open huggingface.co/datasets/Idavidrein/gpqa, accept its terms while logged in, then run `hf auth login` with a "
    "token that may read gated sets (or set HF_TOKEN), and try again."
)


@dataclass(frozen=True)
class Benchmark:
    """A named benchmark. `columns` are what its hub rows must have; `sizes` are right numbers of problems."""

    name: str
    title: str
    hub: HubSet
    shape: Shape
    columns: frozenset[str]
    sizes: tuple[int, ...] = ()
    note: str = ""


def _plain(name: str, title: str, hub: HubSet, columns: tuple[str, str, str | None], size: int) -> Benchmark:
    needed = frozenset(column for column in columns if column is not None)
    return Benchmark(name, title, hub, plain(*columns), needed, (size,))


BENCHMARKS: Mapping[str, Benchmark] = {
    entry.name: entry
    for entry in (
        _plain(
            "math500",
            "MATH-500",
            HubSet("HuggingFaceH4/MATH-500", split="test"),
            ("problem", "answer", "unique_id"),
            500,
        ),
        _plain("amc23", "AMC23", HubSet("math-ai/amc23", split="test"), ("question", "answer", "id"), 40),
        _plain(
            "amc83",
            "AMC (83)",
            HubSet("AI-MO/aimo-validation-amc", licence="apache-2.0"),
            ("problem", "answer", "id"),
            83,
        ),
        _plain("aime24", "AIME24", HubSet("HuggingFaceH4/aime_2024"), ("problem", "answer", "id"), 30),
        _plain(
            "aime25",
            "AIME25",
            HubSet("MathArena/aime_2025", licence="cc-by-nc-sa-4.0"),
            ("problem", "answer", "problem_idx"),
            30,
        ),
        Benchmark(
            "olympiadbench",
            "OlympiadBench",
            HubSet("Hothan/OlympiadBench", config="OE_TO_maths_en_COMP", licence="apache-2.0"),
            olympiad,
            frozenset({"question", "final_answer"}),
            (674, 675),
            "675 problems in Qwen2.5-Math's own copy",
        ),
        _plain(
            "minerva_math", "Minerva", HubSet("math-ai/minervamath", split="test"), ("question", "answer", None), 272
        ),
        Benchmark(
            "mmlu_stem",
            "MMLU-STEM",
            HubSet("hails/mmlu_no_train", config="all", split="test", licence="mit"),
            mmlu(STEM),
            frozenset({"question", "choices", "answer", "subject"}),
            (3018,),
            "the 18 subjects of Qwen2.5-Math's evaluation",
        ),
        Benchmark(
            "gpqa_diamond",
            "GPQA-Diamond",
            HubSet("Idavidrein/gpqa", config="gpqa_diamond", licence="cc-by-4.0", gate=GPQA_GATE),
            gpqa,
            frozenset({"Question", "Correct Answer", *(f"Incorrect Answer {number}" for number in (1, 2, 3))}),
            (198,),
            "gated; the order of choices is ours",
        ),
        Benchmark(
            "s1k",
            "s1k (verifiable)",
            HubSet("simplescaling/s1K", licence="apache-2.0"),
            verifiable,
            frozenset({"question", "solution", "cot_type"}),
            (),
            "the paper's choice of rows is not published; the rule is ours",
        ),
    )
}


@dataclass(frozen=True)
class LoadedBenchmark:
    """A benchmark's problems and where they came from; `warning` where their number is not the known one."""

    name: str
    title: str
    source: str
    problems: tuple[Problem, ...]
    warning: str | None = None


def load_benchmark(word: str, folder: Path | None = None) -> LoadedBenchmark:
    """`aime24` (from `folder`/aime24.jsonl where there is one, else from the hub), `NAME=PATH`, or `PATH`.

    Raises DataError for an unknown name, a set that cannot be had, a wrong row, a repeated id, an empty set.
    """
    name, path = _named(word)
    if path is None and name not in BENCHMARKS:
        raise DataError(
            f"{word!r} is no known benchmark. Known: {', '.join(BENCHMARKS)}; for a file of your own give its path or "
            "NAME=PATH."
        )
    known = BENCHMARKS.get(name)
    source = str(path) if path else _in_folder(name, folder)
    rows = load_rows(known.hub if known else None, source)
    problems = tuple(problem for place, row in enumerate(rows) if (problem := _problem(name, known, row, place)))
    _check(name, problems)
    origin = str(known.hub) if known and source == HUB else source
    return LoadedBenchmark(name, known.title if known else name, origin, problems, _size_warning(known, len(problems)))


def _named(word: str) -> tuple[str, Path | None]:
    name, equals, path = word.partition("=")
    if equals:
        return name, Path(path)
    if word in BENCHMARKS or not Path(word).suffix:
        return word, None
    return Path(word).stem, Path(word)


def _in_folder(name: str, folder: Path | None) -> str:
    if folder is None:
        return HUB
    for suffix in (".jsonl", ".parquet", ".csv", ""):
        if (folder / f"{name}{suffix}").exists():
            return str(folder / f"{name}{suffix}")
    raise DataError(f"{folder}: has no {name}.jsonl, .parquet or .csv. Put the file there, or leave out the folder.")


def _problem(name: str, known: Benchmark | None, row: Mapping[str, Any], place: int) -> Problem | None:
    """By the hub's shape where the row has its columns, else as a row {id, problem, answer}."""
    try:
        if known and known.columns <= row.keys():
            return known.shape(row, place)
        return local(row, place)
    except DataError as error:
        wanted = f" (or, as on the hub: {', '.join(sorted(known.columns))})" if known else ""
        raise DataError(f"{name}, row {place + 1}: {error}{wanted}.") from None
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{name}, row {place + 1}: does not have the set's shape ({error!r}). Fix the row.") from error


def _check(name: str, problems: tuple[Problem, ...]) -> None:
    if not problems:
        raise DataError(f"{name}: has no problems. Give a file with at least one row.")
    seen: set[str] = set()
    for problem in problems:
        if problem.id in seen:
            raise DataError(f"{name}: the id {problem.id!r} is there twice. Give every problem its own.")
        if not problem.problem or not problem.answer:
            raise DataError(f"{name}: the problem {problem.id!r} has an empty text or answer. Fix or remove it.")
        seen.add(problem.id)


def _size_warning(known: Benchmark | None, count: int) -> str | None:
    if known is None or not known.sizes or count in known.sizes:
        return None
    return f"{known.name}: {count} problems, {' or '.join(map(str, known.sizes))} in the known set: not comparable."
