"""`restrain eval`, `regrade`, `table` and `plot`: benchmarks graded and beside the paper, and figures of runs."""

import re
from collections.abc import Sequence
from functools import partial
from os.path import commonpath
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from restrain_openrlhf.commands.options import parse_shard, sampling_progress, to_folder, with_options
from restrain_openrlhf.data.benchmarks import SUITES, load_benchmark
from restrain_openrlhf.data.outputs import output_folder
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.evaluation import job
from restrain_openrlhf.evaluation.job import Request
from restrain_openrlhf.evaluation.result import BenchmarkFolder, Result, benchmark_folders, grade_folder, load_results
from restrain_openrlhf.evaluation.table import build_table, text_of_table
from restrain_openrlhf.reference.sampling_pass import Shard, ShardedPass


@with_options(Request)
def evaluate(request: Request) -> None:
    """Evaluate a model on benchmarks and keep every response. To resume, run the same command."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    output_folder(request.out)
    part = Shard(*parse_shard(request.shard))
    request.chosen_protocol()
    words = _words(request.benchmarks)
    loaded = [load_benchmark(word, request.benchmark_dir, request.answers, request.column) for word in words]
    for entry in loaded:
        for note in filter(None, (entry.read and f"{entry.name}, {entry.read}", entry.warning)):
            console.print(f"note: {note}")
    sampling = job.prepare(request, loaded, part)
    with sampling_progress(console) as progress:
        task = progress.add_task("responses", total=sum(len(each.prompts) for each in sampling.passes))
        everywhere = ShardedPass([each.path for each in sampling.passes], request.tensor_parallel_size)
        everywhere.draw(part, sampling.run, partial(progress.advance, task))
    if part.count == 1:
        _grade([BenchmarkFolder(each.path.parent) for each in sampling.passes])
    else:
        console.print(f"shard {request.shard} is done. When all are: restrain regrade {request.out}")


def _words(benchmarks: str) -> list[str]:
    given = [word.strip() for word in benchmarks.split(",") if word.strip()]
    words = list(dict.fromkeys(name for word in given for name in SUITES.get(word, (word,))))
    names = [word.partition("=")[0] if "=" in word else Path(word).stem for word in words]
    if not words or len(set(names)) != len(names):
        raise ConfigError(f"--benchmarks {benchmarks!r}: give one or more names, each once, such as aime24,math500.")
    for name in names:
        if not re.fullmatch(r"[\w-][\w.-]*", name):
            raise ConfigError(f"--benchmarks: {name!r} cannot name a folder. Use letters, digits, dots and dashes.")
    return words


def regrade(run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of `restrain eval`.")]) -> None:
    """Grade stored responses again, and report what changed. Joins the shards of an evaluation."""
    _grade(benchmark_folders(run))


def _grade(folders: Sequence[BenchmarkFolder]) -> None:
    """Grade every benchmark of an evaluation, and print its numbers."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    for folder in folders:
        result, changes = grade_folder(folder)
        console.print(_line(result))
        if changes.changed:
            Console(stderr=True).print(f"{folder.path.name}: {changes.changed} of {changes.of} grades changed.")


def _line(result: Result) -> str:
    scores, how = result.scores, result.provenance
    intervals = f"[{scores.low:.1%}, {scores.high:.1%}] over problems"
    if scores.samples_low is not None:
        intervals += f", [{scores.samples_low:.1%}, {scores.samples_high:.1%}] over samples"
    # Of one response, they are pass@1 again.
    more = f", pass@{how.n} {scores.pass_at_k[how.n]:.1%}, maj@{how.n} {scores.maj_at_k[how.n]:.1%}" * (how.n > 1)
    each = "1 response" if how.n == 1 else f"{how.n} responses"
    return (
        f"{how.title}: pass@1 {scores.pass_at_1:.1%} {intervals}{more}; "
        f"{how.problems} problems, {each} each, {scores.mean_tokens:.0f} tokens, "
        f"truncated {scores.truncated_share:.1%}, no answer {scores.missing_share:.1%}; "
        f"template {how.template}, protocol {how.protocol}"
    )


def table(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Folders of `restrain eval`, or NAME=FOLDER.")],
    style: Annotated[
        Literal["markdown", "csv", "json"], typer.Option("--format", help="Format of the table.")
    ] = "markdown",
    no_paper: Annotated[bool, typer.Option("--no-paper", help="Leave out the paper's numbers.")] = False,
    ablations: Annotated[bool, typer.Option("--ablations", help="Also print the paper's ablations.")] = False,
    base: Annotated[
        str | None,
        typer.Option(help="Hub id of the base model.", show_default="the run folder's"),
    ] = None,
) -> None:
    """Print pass@1 of each run on each benchmark, with its interval, beside the paper's results of the same models."""
    found = build_table(_results(runs), base, not no_paper, ablations)
    for note in found.notes if style == "csv" else ():
        typer.echo(f"note: {note}", err=True)
    typer.echo(text_of_table(found, style), nl=False)


def _results(words: list[str]) -> dict[str, list[Result]]:
    """The results of each run by its name. Raises ConfigError if two runs have one name."""
    parts = [word.partition("=") for word in words]
    named = [
        (name, Path(folder)) if equals else (Path(name).resolve().name, Path(name)) for name, equals, folder in parts
    ]
    if len(dict(named)) != len(named):
        raise ConfigError("Two runs have the same name. Give each its own: NAME=FOLDER.")
    return {name: load_results(folder) for name, folder in named}


def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    out: Annotated[
        Path | None,
        to_folder("Output folder.", show_default="plots/ in the run's folder, or in the folder that holds all runs"),
    ] = None,
) -> None:
    """Plot training curves and vote statistics of runs."""
    from restrain_openrlhf.evaluation import figures  # noqa: PLC0415 - imports matplotlib

    console = Console(soft_wrap=True, highlight=False, markup=False)
    folder = out or Path(commonpath([run.absolute() for run in runs])) / "plots"
    loaded = [figures.load_curves(run, name) for run, name in zip(runs, figures.distinct_names(runs), strict=True)]
    for path in figures.save_run_figures(loaded, folder):
        console.print(path)
