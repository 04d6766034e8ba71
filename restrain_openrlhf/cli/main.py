"""Assembles the commands and turns our errors, and a training stack that is absent, into one line and status 2."""

import sys
from typing import NoReturn

import typer
from rich.console import Console

from restrain_openrlhf.cli.answers import extract, grade
from restrain_openrlhf.cli.data import data
from restrain_openrlhf.cli.demo import demo
from restrain_openrlhf.cli.doctor import doctor
from restrain_openrlhf.cli.evaluate import evaluate, regrade, table
from restrain_openrlhf.cli.figures import analyze, effect, plot
from restrain_openrlhf.cli.k8s import k8s
from restrain_openrlhf.cli.reference import make_reference, merge_reference, reference, subset_reference
from restrain_openrlhf.cli.score import score
from restrain_openrlhf.cli.serve import agent_path, serve
from restrain_openrlhf.cli.study import study
from restrain_openrlhf.cli.train import presets, show, train
from restrain_openrlhf.errors import RestrainError

app = typer.Typer(
    help="RESTRAIN: train a reasoning model by RL with no labels, on OpenRLHF.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

TRAINING = "Training"
DATA = "Rollouts and answers"
EVALUATION = "Evaluation"
LOOKING = "Looking"
INTERRUPTED = 130

app.command(rich_help_panel=TRAINING)(demo)
app.command(rich_help_panel=TRAINING)(train)
app.command(rich_help_panel=TRAINING)(study)
app.command(rich_help_panel=TRAINING)(reference)
app.command("agent-path", rich_help_panel=TRAINING)(agent_path)
app.command(rich_help_panel=TRAINING)(serve)
app.add_typer(k8s, name="k8s", rich_help_panel=TRAINING)
app.command("make-reference", rich_help_panel=TRAINING)(make_reference)
app.command("merge-reference", rich_help_panel=TRAINING)(merge_reference)
app.command("subset-reference", rich_help_panel=TRAINING)(subset_reference)
app.command(rich_help_panel=DATA)(score)
app.command(rich_help_panel=DATA)(extract)
app.command(rich_help_panel=DATA)(grade)
app.add_typer(data, name="data", rich_help_panel=DATA)
app.command("eval", rich_help_panel=EVALUATION)(evaluate)
app.command(rich_help_panel=EVALUATION)(regrade)
app.command(rich_help_panel=EVALUATION)(table)
app.command(rich_help_panel=EVALUATION)(analyze)
app.command(rich_help_panel=EVALUATION)(effect)
app.command(rich_help_panel=LOOKING)(presets)
app.command(rich_help_panel=LOOKING)(show)
app.command(rich_help_panel=LOOKING)(plot)
app.command(rich_help_panel=LOOKING)(doctor)


def main() -> None:
    """The `restrain` console script."""
    run_app(app)


def run_app(commands: typer.Typer) -> None:
    """Run a command line; an error of ours is one line and status 2, an interruption says how to go on."""
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
    except SystemExit as end:
        # Typer ends with this status on Ctrl-C, and says nothing.
        if end.code == INTERRUPTED:
            Console(stderr=True).print("interrupted: the same command goes on from here.")
        raise


def _end(message: str) -> NoReturn:
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"error: {message}", style="red", markup=False)
    sys.exit(2)


if __name__ == "__main__":
    main()
