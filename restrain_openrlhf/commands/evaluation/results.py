"""`restrain table` and `restrain plot`: evaluations beside the paper's numbers, and figures of runs."""

from os.path import commonpath
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from restrain_openrlhf.commands.options import to_folder
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.evaluation.result import Result, load_results
from restrain_openrlhf.evaluation.table import build_table, text_of_table


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
    from restrain_openrlhf.evaluation.figures import curves  # noqa: PLC0415 - imports matplotlib

    console = Console(soft_wrap=True, highlight=False, markup=False)
    folder = out or Path(commonpath([run.absolute() for run in runs])) / "plots"
    loaded = [curves.load_curves(run, name) for run, name in zip(runs, curves.distinct_names(runs), strict=True)]
    for path in curves.save_run_figures(loaded, folder):
        console.print(path)
