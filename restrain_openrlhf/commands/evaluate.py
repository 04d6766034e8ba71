"""`restrain eval`, `regrade`, `table`, `analyze` and `plot`: benchmarks beside the paper, runs beside gold, figures."""

from collections.abc import Sequence
from functools import partial
from os.path import commonpath
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from restrain_openrlhf.commands.options import GOLD, sampling_progress, to_folder, wide_console, with_options
from restrain_openrlhf.config.command_line import kind_word
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.evaluation.job import Evaluation, Request
from restrain_openrlhf.evaluation.labels import Measures, gold_for, label_quality
from restrain_openrlhf.evaluation.paired import differences
from restrain_openrlhf.evaluation.result import BenchmarkFolder, Result, benchmark_folders, grade_folder, load_result
from restrain_openrlhf.evaluation.table import as_markdown, build_table
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.kept import kept_prompts, read_kept
from restrain_openrlhf.reference.sampling_pass import WHOLE


@with_options(Request)
def evaluate(request: Request) -> None:
    """Evaluate a model on benchmarks and keep every response. To resume, run the same command."""
    console, evaluation = Console(stderr=True, soft_wrap=True, highlight=False), Evaluation(request)
    for each in evaluation.benchmarks:
        read = each.read and f"{each.name}, {each.read}; answers: {kind_word(each.kind)}"
        for note in filter(None, (read, each.warning)):
            console.print(f"note: {note}")
    count = sum(len(each.prompts) for each in evaluation.passes)
    with sampling_progress(console) as progress:
        task = progress.add_task("responses", total=count)
        evaluation.draw(partial(progress.advance, task))
    if request.shard == WHOLE:
        _grade(evaluation.folders)
    else:
        console.print(f"shard {request.shard} is done. When all are: restrain regrade {request.out}")


def regrade(run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of `restrain eval`.")]) -> None:
    """Grade stored responses again. Joins the shards of an evaluation."""
    _grade(benchmark_folders(run))


def _grade(folders: Sequence[BenchmarkFolder]) -> None:
    """Grade every benchmark of an evaluation, and print its numbers."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    for folder in folders:
        console.print(_line(grade_folder(folder)))


def _line(result: Result) -> str:
    scores, how = result.scores, result.provenance
    intervals = f"[{scores.low:.1%}, {scores.high:.1%}] over problems"
    # Of one response, they are pass@1 again.
    more = f", pass@{how.n} {scores.pass_at_k[how.n]:.1%}, maj@{how.n} {scores.maj_at_n:.1%}" * (how.n > 1)
    each = "1 response" if how.n == 1 else f"{how.n} responses"
    return (
        f"{how.title}: pass@1 {scores.pass_at_1:.1%} {intervals}{more}; "
        f"{how.problems} problems, {each} each, {scores.mean_tokens:.0f} tokens, "
        f"truncated {scores.truncated_share:.1%}, no answer {scores.missing_share:.1%}; "
        f"template {how.template}, protocol {how.protocol}"
    )


def table(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Folders of `restrain eval`, or NAME=FOLDER.")],
    base: Annotated[
        str | None,
        typer.Option(help="Hub id of the base model.", show_default="the run folder's"),
    ] = None,
) -> None:
    """Print pass@1 of each run on each benchmark, with its interval, beside the paper's results of the same models.

    Below it, each two runs are compared over the same problems.
    """
    named = _folders(runs)
    found = {name: [(each, load_result(each, run)) for each in benchmark_folders(run)] for name, run in named.items()}
    results = {name: [result for _, result in each] for name, each in found.items()}
    typer.echo(as_markdown(build_table(results, base)), nl=False)
    for line in differences(found):
        typer.echo(f"- {line}")


def _folders(words: list[str]) -> dict[str, Path]:
    """The folder of each run by its name. Raises ConfigError if two runs have one name."""
    parts = [word.partition("=") for word in words]
    named = [
        (name, Path(folder)) if equals else (Path(name).resolve().name, Path(name)) for name, equals, folder in parts
    ]
    if len(dict(named)) != len(named):
        raise ConfigError("Two runs have the same name. Give each its own: NAME=FOLDER.")
    return dict(named)


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


def analyze(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, with kept rollouts.")],
    gold: Annotated[Path, typer.Option(help=GOLD)],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Count with gold: were the majorities that a run trained on right, and did training reward right rollouts?"""
    next(read_kept(run))
    found = label_quality(
        read_kept(run), gold_for(kept_prompts(run), gold, RunFolder(run).flags(), RunFolder(run).kind)
    )
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
        return
    table = Table("groups", "majority right", "95 %", "some right", "rollouts right", "signal agrees", "of")
    table.add_row(*_cells(found.total))
    without = f"{found.prompts_without_gold} of {found.prompts} prompts and {found.groups_without_gold} groups"
    wide_console().print(table, f"Without gold: {without}.", highlight=False)


def _cells(found: Measures) -> list[str]:
    bounds, agrees = f"{found.label_low:.1%} to {found.label_high:.1%}", found.reward_accuracy
    shares = [f"{found.label_accuracy:.1%}", bounds, f"{found.some_right:.1%}", f"{found.rollout_accuracy:.1%}"]
    return [str(found.groups), *shares, "–" if agrees is None else f"{agrees:.1%}", str(found.signals)]
