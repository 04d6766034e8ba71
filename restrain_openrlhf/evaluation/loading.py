"""Loads benchmarks: by name from the hub or a folder of copies, or any file of one's own; checks every row."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from restrain_openrlhf.data.sources import HUB, load_rows
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.benchmarks import BENCHMARKS, Benchmark
from restrain_openrlhf.evaluation.problems import Problem, local


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
