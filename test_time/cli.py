"""The `test-time` command line."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from restrain_openrlhf.commands.main import run_app
from restrain_openrlhf.commands.options import GOLD, Quiet, split_answers, to_folder
from restrain_openrlhf.config.command_line import ANSWERS, find_config, parse_overrides
from restrain_openrlhf.config.documents import own_path
from restrain_openrlhf.hook.launch.progress import StepProgress
from test_time.adaptation import PREDICTIONS, REPORT, Adaptation
from test_time.problems import Source

training = partial(typer.Option, rich_help_panel="Training")
problems = partial(typer.Option, rich_help_panel="Problems and prompts")
app = typer.Typer(
    help="Adapt a model to an unlabelled test set by RL, and write an answer for each problem.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


@app.callback()
def _commands() -> None:
    """typer would hide the command's name if the app had only a command and no callback."""


@app.command()
def adapt(
    *,
    model: Annotated[str, typer.Option(help="The model to adapt: a hub id or a local folder.")],
    prompts: Annotated[
        str,
        typer.Option(help="Problems: a table (JSONL, JSON, CSV, TSV, Parquet, text), or a benchmark's name."),
    ],
    out: Annotated[Path, to_folder("Output folder: predictions.jsonl, the adapted model, report.html and logs.")],
    config: Annotated[
        Path | None,
        training(
            metavar="CONFIG",
            parser=find_config,
            help="A YAML file, or a preset by name (`restrain presets`).",
            show_default="a preset for the known set of nearest size",
        ),
    ] = None,
    method: Annotated[str | None, training(help="restrain, ttrl, ettrl.", show_default="restrain, or CONFIG's")] = None,
    steps: Annotated[int | None, training(min=1, help="Training steps.")] = None,
    votes: Annotated[
        int, training(min=2, help="Rollouts per problem that vote on its answer, drawn at T 0.6 and top-p 0.95.")
    ] = 64,
    overrides: Annotated[
        list[str] | None,
        training("--set", metavar="KEY=VALUE", help="Override one key, such as method.kappa=2. Repeatable."),
    ] = None,
    column: Annotated[
        str | None, problems(help="Column of the problem, or several with commas.", show_default="by its name")
    ] = (None),
    benchmark_dir: Annotated[
        Path | None, problems(help="Local copies of benchmarks, NAME.jsonl.", show_default="hub")
    ] = None,
    answers: Annotated[
        str | None, problems(metavar="KIND", help=ANSWERS, show_default="math, or the benchmark's own")
    ] = None,
    boxed: Annotated[
        bool | None,
        problems(
            "--boxed/--no-boxed",
            help="Ask in the prompt for an answer in the form that is read, such as a box.",
            show_default="with a chat template",
        ),
    ] = None,
    gold: Annotated[
        Path | None,
        typer.Option(help=f"{GOLD} Known benchmarks have theirs.", rich_help_panel="Evaluation (needs gold answers)"),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Adapt MODEL to PROMPTS and write an answer for each problem, with its vote share. Run it again to resume."""
    from test_time.adapt import adapt as run  # noqa: PLC0415 - imports matplotlib
    from test_time.report import lead  # noqa: PLC0415

    given, kind = split_answers(parse_overrides(overrides or []), answers)
    job = Adaptation(
        model=own_path(model),
        problems=Source(prompts, column, benchmark_dir),
        out=out.absolute(),
        config=config,
        method=method,
        steps=steps,
        votes=votes,
        boxed=boxed,
        answers=kind,
        gold=gold,
        overrides=given,
    )
    console = Console(stderr=True, soft_wrap=True, quiet=quiet)
    shown = StepProgress("test-time", console)
    outcome = run(job, shown.on_phase, shown.on_step, partial(console.print, markup=False))
    console.print(lead(outcome), style="bold")
    console.print(f"answers: {job.out / PREDICTIONS}\nreport: {job.out / REPORT}\nmodel: {outcome.chosen_model}")


def main() -> None:
    run_app(app)


if __name__ == "__main__":
    main()
