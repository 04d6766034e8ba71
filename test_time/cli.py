"""The `test-time` command line."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import BaseModel, ConfigDict
from rich.console import Console

from restrain_openrlhf.commands.main import RESUMED, run_app
from restrain_openrlhf.commands.options import GOLD, to_folder, with_options
from restrain_openrlhf.config.command_line import find_config, parse_overrides
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.training.progress import step_progress

if TYPE_CHECKING:
    from test_time.adapt import AdaptListener
    from test_time.adaptation import Adaptation

training = partial(typer.Option, rich_help_panel="Training")
problems = partial(typer.Option, rich_help_panel="Problems and prompts")
evaluation = partial(typer.Option, rich_help_panel="Evaluation (needs gold answers)")
Model = Annotated[str, typer.Option(help="The model to adapt: a hub id or a local folder.")]
Heldout = Annotated[list[str] | None, evaluation(help="A benchmark that is not trained on, evaluated too. Repeatable.")]
app = typer.Typer(
    help="Adapt a model to an unlabelled test set by RL, and write an answer for each problem.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


class Choices(BaseModel):
    """The options that both commands have for each adaptation."""

    model_config = ConfigDict(frozen=True)

    out: Annotated[Path, to_folder("Output folder: predictions.jsonl, the adapted model, report.html and logs.")]
    config: Annotated[
        Path | None,
        training(
            metavar="CONFIG",
            parser=find_config,
            help="A YAML file, or a preset by name (`restrain presets`).",
            show_default="by --preset",
        ),
    ] = None
    method: Annotated[str | None, training(help="restrain, ttrl, ettrl.", show_default="restrain, or CONFIG's")] = None
    preset: Annotated[
        str | None,
        training(help="paper or ttrl_protocol, for the known set of nearest size.", show_default="paper"),
    ] = None
    steps: Annotated[int | None, training(min=1, help="Training steps.")] = None
    epochs: Annotated[int | None, training(min=1, help="Passes over all problems.")] = None
    votes: Annotated[
        int, training(min=2, help="Rollouts per problem of each vote. Answers are voted at T 0.6, top-p 0.95.")
    ] = 64
    overrides: Annotated[
        list[str] | None, training("--set", metavar="KEY=VALUE", help="As for `restrain train`. Repeatable.")
    ] = None
    stop: Annotated[
        list[str] | None,
        training(
            metavar="NAME=NUMBER", help="Limits that end a run early: kl, template, entropy, patience. Repeatable."
        ),
    ] = None
    no_stop: Annotated[bool, training("--no-stop", help="Never end a run early.")] = False
    column: Annotated[str | None, problems(help="Column that holds the problem.", show_default="problem, question")] = (
        None
    )
    split: Annotated[str, problems(help="Split of a hub data set.")] = "test"
    benchmark_dir: Annotated[
        Path | None, problems(help="Local copies of benchmarks, NAME.jsonl.", show_default="hub")
    ] = None
    boxed: Annotated[
        bool | None,
        problems("--boxed/--no-boxed", help="Ask for a boxed answer.", show_default="with a chat template"),
    ] = None
    chat: Annotated[
        bool | None,
        problems("--chat/--no-chat", help="Use the tokenizer's chat template.", show_default="as CONFIG says"),
    ] = None

    def job(self, model: str, prompts: str, gold: Path | None, heldout: list[str] | None) -> "Adaptation":
        """The adaptation to these prompts. Raises ConfigError for options that contradict each other."""
        from test_time.adaptation import Adaptation  # noqa: PLC0415 - keeps `test-time --help` quick
        from test_time.problems import Source  # noqa: PLC0415
        from test_time.stopping import parse_stop_rules  # noqa: PLC0415

        if self.config is not None and self.preset is not None:
            raise ConfigError("--config and --preset are both given. Give one: a preset is a configuration.")
        if self.no_stop and self.stop:
            raise ConfigError("--stop and --no-stop are both given. Give one.")
        return Adaptation(
            model=model,
            problems=Source(prompts, self.column, self.split, self.benchmark_dir),
            out=self.out.absolute(),
            preset=self.preset or "paper",
            gold=gold,
            heldout=tuple(Source(word, folder=self.benchmark_dir) for word in heldout or []),
            stop=None if self.no_stop else parse_stop_rules(self.stop or []),
            overrides=parse_overrides(self.overrides or []),
            **self.model_dump(include={"config", "method", "steps", "epochs", "votes", "boxed", "chat"}),
        )


@app.command()
@with_options(Choices)
def adapt(
    model: Model,
    prompts: Annotated[
        str, typer.Option(help="Problems: JSONL, CSV, Parquet, a hub data set, or a benchmark's name such as aime24.")
    ],
    choices: Choices,
    gold: Annotated[Path | None, evaluation(help=f"{GOLD} Known benchmarks have theirs.")] = None,
    heldout: Heldout = None,
) -> None:
    """Adapt MODEL to PROMPTS and write an answer for each problem, with its vote share. Run it again to resume."""
    from test_time.adapt import adapt as run  # noqa: PLC0415 - keeps `test-time --help` quick
    from test_time.adaptation import PREDICTIONS, REPORT  # noqa: PLC0415
    from test_time.report import lead  # noqa: PLC0415

    job = choices.job(model, prompts, gold, heldout)
    console = Console(stderr=True)
    with listening("test-time", console) as listener:
        outcome = run(job, listener)
    console.print(lead(outcome), style="bold", soft_wrap=True)
    console.print(f"answers: {job.out / PREDICTIONS}\nreport: {job.out / REPORT}", soft_wrap=True)
    console.print(f"model: {outcome.chosen_model}", soft_wrap=True)


@app.command()
@with_options(Choices)
def sweep(
    model: Model,
    prompts: Annotated[list[str], typer.Option(help="A set of problems, as for `adapt`. Repeatable.")],
    choices: Choices,
    gold: Annotated[
        list[str] | None,
        evaluation(metavar="SET=FILE", help=f"Of one set. {GOLD} Repeatable."),
    ] = None,
    heldout: Heldout = None,
) -> None:
    """Adapt MODEL to several test sets, each from the same base model, and write one table of all of them."""
    from test_time.adapt import sweep as run  # noqa: PLC0415 - see adapt

    every = [choices.job(model, word, None, heldout) for word in prompts]
    answers = gold_by_set(gold, [job.problems.name for job in every])
    jobs = [replace(job, out=job.out / job.problems.name, gold=answers.get(job.problems.name)) for job in every]
    console, out = Console(stderr=True), choices.out.absolute()
    run(jobs, out, lambda name: listening(name, console))
    console.print(f"table: {out / 'sweep.html'}", soft_wrap=True)


def gold_by_set(items: list[str] | None, names: list[str]) -> dict[str, Path]:
    """`aime24=gold.jsonl` as paths by set. Raises ConfigError for a set that is not among `names`."""
    found: dict[str, Path] = {}
    for item in items or []:
        name, equals, path = item.partition("=")
        if not equals or name not in names:
            raise ConfigError(f"--gold {item!r}: give SET=FILE; sets are {', '.join(names)}.")
        found[name] = Path(path)
    return found


@contextmanager
def listening(label: str, console: Console) -> "Iterator[AdaptListener]":
    """Progress on the terminal for one adaptation."""
    from test_time.adapt import AdaptListener  # noqa: PLC0415 - see adapt

    with step_progress(label, console) as (on_phase, on_step):
        yield AdaptListener(on_phase, on_step)


def main() -> None:
    """The `test-time` console script."""
    run_app(app, dict.fromkeys(("adapt", "sweep"), RESUMED))


if __name__ == "__main__":
    main()
