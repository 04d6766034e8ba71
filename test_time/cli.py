"""The `test-time` command line."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from restrain_openrlhf.cli.main import RESUMED, run_app
from restrain_openrlhf.cli.options import GOLD
from restrain_openrlhf.cli.train import step_progress
from restrain_openrlhf.config.command_line import parse_overrides
from test_time.options import (
    EVALUATION,
    Benchmarks,
    Boxed,
    Chat,
    Column,
    Config,
    Epochs,
    Heldout,
    Method,
    Model,
    NoStop,
    Out,
    Overrides,
    Preset,
    Split,
    Steps,
    Stop,
    Votes,
    choose_preset,
    choose_rules,
    gold_by_set,
    heldout_sources,
)

if TYPE_CHECKING:
    from test_time.adapt import Listener

app = typer.Typer(
    help="Adapt a model to an unlabelled test set by RL, and write an answer for each problem.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


@app.command()
def adapt(
    model: Model,
    prompts: Annotated[
        str, typer.Option(help="Problems: JSONL, CSV, Parquet, a hub data set, or a benchmark's name such as aime24.")
    ],
    out: Out,
    config: Config = None,
    method: Method = None,
    preset: Preset = None,
    steps: Steps = None,
    epochs: Epochs = None,
    votes: Votes = 64,
    overrides: Overrides = None,
    stop: Stop = None,
    no_stop: NoStop = False,
    column: Column = None,
    split: Split = "test",
    benchmark_dir: Benchmarks = None,
    boxed: Boxed = None,
    chat: Chat = None,
    gold: Annotated[
        Path | None,
        typer.Option(
            help=f"{GOLD} Known benchmarks have theirs.",
            rich_help_panel=EVALUATION,
        ),
    ] = None,
    heldout: Heldout = None,
) -> None:
    """Adapt MODEL to PROMPTS and write an answer for each problem, with its vote share. Run it again to resume."""
    from test_time.adapt import adapt as run  # noqa: PLC0415 - keeps `test-time --help` quick
    from test_time.adaptation import Adaptation, AdaptationFolder  # noqa: PLC0415
    from test_time.problems import Source  # noqa: PLC0415
    from test_time.report import lead  # noqa: PLC0415

    job = Adaptation(
        model=model,
        problems=Source(prompts, column, split, benchmark_dir),
        out=out.absolute(),
        config=config,
        method=method,
        preset=choose_preset(config, preset),
        steps=steps,
        epochs=epochs,
        votes=votes,
        boxed=boxed,
        chat=chat,
        gold=gold,
        heldout=heldout_sources(heldout, benchmark_dir),
        stop=choose_rules(stop, no_stop),
        overrides=parse_overrides(overrides or []),
    )
    console, folder = Console(stderr=True), AdaptationFolder(job.out)
    with listening("test-time", console) as listener:
        outcome = run(job, listener)
    console.print(lead(outcome), style="bold", soft_wrap=True)
    console.print(f"answers: {folder.predictions}\nreport: {folder.report}", soft_wrap=True)
    console.print(f"model: {outcome.chosen_model}", soft_wrap=True)


@app.command()
def sweep(
    model: Model,
    prompts: Annotated[list[str], typer.Option(help="A set of problems, as for `adapt`. Repeatable.")],
    out: Out,
    config: Config = None,
    method: Method = None,
    preset: Preset = None,
    steps: Steps = None,
    epochs: Epochs = None,
    votes: Votes = 64,
    overrides: Overrides = None,
    stop: Stop = None,
    no_stop: NoStop = False,
    column: Column = None,
    split: Split = "test",
    benchmark_dir: Benchmarks = None,
    boxed: Boxed = None,
    chat: Chat = None,
    gold: Annotated[
        list[str] | None,
        typer.Option(metavar="SET=FILE", help=f"Of one set. {GOLD} Repeatable.", rich_help_panel=EVALUATION),
    ] = None,
    heldout: Heldout = None,
) -> None:
    """Adapt MODEL to several test sets, each from the same base model, and write one table of all of them."""
    from test_time.adaptation import Adaptation  # noqa: PLC0415 - see adapt
    from test_time.problems import Source  # noqa: PLC0415
    from test_time.sweep import sweep as run  # noqa: PLC0415

    sources = [Source(word, column, split, benchmark_dir) for word in prompts]
    answers = gold_by_set(gold, [source.name for source in sources])
    jobs = [
        Adaptation(
            model=model,
            problems=source,
            out=out.absolute() / source.name,
            config=config,
            method=method,
            preset=choose_preset(config, preset),
            steps=steps,
            epochs=epochs,
            votes=votes,
            boxed=boxed,
            chat=chat,
            gold=answers.get(source.name),
            heldout=heldout_sources(heldout, benchmark_dir),
            stop=choose_rules(stop, no_stop),
            overrides=parse_overrides(overrides or []),
        )
        for source in sources
    ]
    console = Console(stderr=True)
    run(jobs, out.absolute(), lambda name: listening(name, console))
    console.print(f"table: {out.absolute() / 'sweep.html'}", soft_wrap=True)


@contextmanager
def listening(label: str, console: Console) -> "Iterator[Listener]":
    """Progress on the terminal for one adaptation."""
    from test_time.adapt import Listener  # noqa: PLC0415 - see adapt

    with step_progress(label, console) as (on_phase, on_step):
        yield Listener(on_phase, on_step)


def main() -> None:
    """The `test-time` console script."""
    run_app(app, dict.fromkeys(("adapt", "sweep"), RESUMED))


if __name__ == "__main__":
    main()
