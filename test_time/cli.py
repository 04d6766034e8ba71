"""The `test-time` command line."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from restrain_openrlhf.cli.main import run_app
from restrain_openrlhf.cli.train import step_progress
from restrain_openrlhf.config.overrides import parse_overrides

app = typer.Typer(
    help="Adapt a model to an unlabelled test set by RL, and get answers for it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _commands() -> None:
    """Keeps `adapt` a command of its own while it is the only one."""


@app.command()
def adapt(
    model: Annotated[str, typer.Option(help="The model to adapt: a hub id or a local folder.")],
    prompts: Annotated[Path, typer.Option(help="Problems without answers, JSON Lines with `problem`.")],
    out: Annotated[Path, typer.Option(help="Folder for predictions.jsonl, the adapted model and all else.")],
    config: Annotated[Path, typer.Option(help="Method and OpenRLHF flags, as for `restrain train`.")],
    votes: Annotated[int, typer.Option(min=1, help="Rollouts of each vote.")] = 16,
    gold: Annotated[
        Path | None, typer.Option(help="Answers {id, answer}, to see in the end what it was worth; never trained on.")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="As for `restrain train`. Repeatable.")
    ] = None,
) -> None:
    """Adapt MODEL to PROMPTS and write an answer for each, with how sure it is. A killed run goes on."""
    from test_time.adapt import Adaptation  # noqa: PLC0415 - keeps `test-time --help` quick
    from test_time.adapt import adapt as run  # noqa: PLC0415
    from test_time.report import lead  # noqa: PLC0415

    chosen = tuple(parse_overrides(overrides or []).items())
    job = Adaptation(model, prompts, out.absolute(), config, votes, chosen, gold)
    console = Console(stderr=True)
    with step_progress("test-time", console) as (on_phase, on_step):
        done = run(job, on_phase, on_step)
    console.print(lead(done.rows, done.comparison), style="bold", soft_wrap=True)
    console.print(f"answers: {done.path}\nreport: {done.report}\nmodel: {done.model}", soft_wrap=True)


def main() -> None:
    """The `test-time` console script."""
    run_app(app)


if __name__ == "__main__":
    main()
