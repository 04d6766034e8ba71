"""`restrain eval`, `regrade`, `table`, `analyze` and `plot`: benchmarks beside the paper, runs beside gold, figures."""

from collections.abc import Sequence
from functools import partial
from os.path import commonpath
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from restrain_openrlhf.commands.options import GOLD, sampling_progress, to_folder, with_options
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.evaluation.job import Evaluation, Request
from restrain_openrlhf.evaluation.labels import LabelQuality, gold_for, label_quality
from restrain_openrlhf.evaluation.result import BenchmarkFolder, Result, benchmark_folders, grade_folder, load_results
from restrain_openrlhf.evaluation.table import as_csv, as_markdown, build_table
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.kept import kept_prompts, read_kept
from restrain_openrlhf.reference.sampling_pass import WHOLE


@with_options(Request)
def evaluate(request: Request) -> None:
    """Evaluate a model on benchmarks and keep every response. To resume, run the same command."""
    console, evaluation = Console(stderr=True, soft_wrap=True, highlight=False), Evaluation(request)
    for each in evaluation.benchmarks:
        for note in filter(None, (each.read and f"{each.name}, {each.read}", each.warning)):
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
    style: Annotated[Literal["markdown", "csv"], typer.Option("--format", help="Format of the table.")] = "markdown",
    base: Annotated[
        str | None,
        typer.Option(help="Hub id of the base model.", show_default="the run folder's"),
    ] = None,
) -> None:
    """Print pass@1 of each run on each benchmark, with its interval, beside the paper's results of the same models."""
    found = build_table(_results(runs), base)
    for note in found.notes if style == "csv" else ():
        typer.echo(f"note: {note}", err=True)
    typer.echo(as_csv(found) if style == "csv" else as_markdown(found), nl=False)


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
    console = Console(soft_wrap=True, highlight=False)
    console.print(_totals(run, found))
    by_step = Table("step", "groups", "majority right", "some right", "signal agrees", title="by step")
    for each in found.by_window:
        part = each.measures
        shares = map(_percent, (part.label_accuracy, part.some_right, part.reward_accuracy))
        steps = str(each.first) if each.first == each.last else f"{each.first} to {each.last}"
        by_step.add_row(steps, str(part.groups), *shares)
    console.print(by_step)


def _totals(run: Path, found: LabelQuality) -> Table:
    table, total = Table("of the kept rollouts", "", title=str(run), title_justify="left"), found.total
    bounds = f"[{_percent(total.label_low)}, {_percent(total.label_high)}]"
    table.add_row("groups with gold, without", f"{total.groups}, {found.groups_without_gold}")
    table.add_row("prompts without gold, of all", f"{found.prompts_without_gold} of {found.prompts}")
    table.add_row("label accuracy: the majority is right", f"{_percent(total.label_accuracy)} {bounds}")
    table.add_row("some rollout is right", _percent(total.some_right))
    table.add_row("rollouts that are right", _percent(total.rollout_accuracy))
    agrees = f"{_percent(total.reward_accuracy)} of {total.signals} rollouts"
    table.add_row("reward accuracy: the signal's sign agrees", agrees)
    return table


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"
