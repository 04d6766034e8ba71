"""Assembles the commands. Our errors, and missing dependencies, become one line and exit status 2."""

import inspect
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from tempfile import gettempdir
from typing import Annotated, Any, NoReturn

import typer
from rich.columns import Columns
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text
from typer import rich_utils

from restrain_openrlhf.commands.data import data
from restrain_openrlhf.commands.demo import demo
from restrain_openrlhf.commands.doctor import doctor
from restrain_openrlhf.commands.evaluate import analyze, evaluate, plot, regrade, table
from restrain_openrlhf.commands.gpu_check.command import gpu_check
from restrain_openrlhf.commands.init import init
from restrain_openrlhf.commands.integrate import integrate
from restrain_openrlhf.commands.k8s.command import k8s
from restrain_openrlhf.commands.premise.command import premise
from restrain_openrlhf.commands.premise.label import label
from restrain_openrlhf.commands.publish import publish
from restrain_openrlhf.commands.score import agent_path, score, serve
from restrain_openrlhf.commands.study import study
from restrain_openrlhf.commands.train import presets, reference, show, train
from restrain_openrlhf.commands.view.page import view
from restrain_openrlhf.errors import FULL_DISK, RestrainError


class WholeWords(Table):
    """A table of a help page that cuts off no option's name and no long word, however narrow the terminal."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Add a row. All columns fold long words; those before the last two, which have the names, are not narrowed."""
        super().add_row(*cells, **options)
        # An option's help is several texts beside or below each other.
        for text in (each for cell in cells if isinstance(cell, Columns) for each in cell.renderables):
            if isinstance(text, Text):
                text.overflow = "fold"
        for place, column in enumerate(self.columns):
            column.overflow, column.no_wrap = "fold", place < len(self.columns) - 2


app = typer.Typer(
    help="RESTRAIN: train reasoning models by RL without labels, on OpenRLHF.\n\n"
    "To adapt a model to an unlabelled test set, see `test-time adapt --help`.",
    no_args_is_help=True,
    # Commands below take the names of the help option from here.
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

# Panels of the help: what users want to do, in the order in which they do it.
START = "Start"
BEFORE = "Train without labels: prepare"
TRAINING = "Train without labels: train, and look at the result"
EVALUATION = "Train without labels: evaluate and publish"
DEPLOYMENT = "In an existing deployment"
CLUSTER = "On a cluster"
INTERRUPTED = 130


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"restrain-openrlhf {version('restrain-openrlhf')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the installed version and exit."),
    ] = False,
) -> None:
    pass


# The commands by their panel of `restrain --help`.
COMMANDS: Mapping[str, Sequence[Callable[..., None] | typer.Typer]] = {
    START: (doctor, demo, init),
    BEFORE: (data, presets, show, reference, premise, label, gpu_check),
    TRAINING: (train, study, plot, view, analyze),
    EVALUATION: (evaluate, regrade, table, publish),
    DEPLOYMENT: (integrate, agent_path, serve, score),
    CLUSTER: (k8s,),
}


def _add(command: Callable[..., None] | typer.Typer, panel: str) -> None:
    if isinstance(command, typer.Typer):
        app.add_typer(command, rich_help_panel=panel)
        return
    # Join the lines of each paragraph, so that the help breaks them by the terminal's width.
    text = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(command) or "")
    name = "eval" if command is evaluate else command.__name__.replace("_", "-")
    app.command(name, rich_help_panel=panel, help=text)(command)


for _panel, _commands in COMMANDS.items():
    for _command in _commands:
        _add(_command, _panel)


def main() -> None:
    run_app(app)


def run_app(commands: typer.Typer) -> None:
    """Run a command line. An error of ours becomes one line and exit status 2."""
    # torch prints this warning whenever it is imported; requirements/ has the package that torch looks for.
    warnings.filterwarnings("ignore", "The pynvml package is deprecated", FutureWarning)
    # Typer cuts off what does not fit (typer/rich_utils.py). This can go when it has a setting.
    rich_utils.Table = WholeWords  # type: ignore[attr-defined]
    try:
        commands()
    except RestrainError as error:
        _end(str(error))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith(("restrain_openrlhf", "test_time")):
            raise
        _end(
            f"{error.name} is not installed, and this command needs it. Install the training stack: `make install` in "
            "a checkout, or requirements/gpu.txt."
        )
    except OSError as error:
        if (message := _of_the_file_system(error)) is None:
            raise
        _end(message)
    except SystemExit as end:
        # Typer exits with this status on Ctrl-C and prints nothing.
        if end.code == INTERRUPTED:
            again = "the same command resumes, or starts again where its help does not say so"
            Console(stderr=True, soft_wrap=True).print(f"interrupted: {again}.")
        raise


def _of_the_file_system(error: OSError) -> str | None:
    """What to do where a disk is full or a place cannot be used; None for any other error, which is a bug."""
    if error.errno in FULL_DISK:
        where = error.filename or f"this command's output, or temporary files in {gettempdir()}"
        return f"{where}: {error.strerror}. Free some space, and run the same command again."
    # A missing file is reported where it is read.
    if error.filename is None or isinstance(error, FileNotFoundError):
        return None
    return f"{error.filename}: {error.strerror}. Name another place, or see to it that this user may use this one."


def _end(message: str) -> NoReturn:
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"error: {message}", style="red", markup=False)
    sys.exit(2)


if __name__ == "__main__":
    main()
