"""Options that `test-time adapt` and `test-time sweep` share, and their checks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from restrain_openrlhf.cli.options import to_folder
from restrain_openrlhf.config.command_line import find_config
from restrain_openrlhf.errors import ConfigError

if TYPE_CHECKING:
    from test_time.problems import Source
    from test_time.stopping import StopRules

TRAINING = "Training"
PROBLEMS = "Problems and prompts"
EVALUATION = "Evaluation (needs gold answers)"
Model = Annotated[str, typer.Option(help="The model to adapt: a hub id or a local folder.")]
Out = Annotated[Path, to_folder("Output folder: predictions.jsonl, the adapted model, report.html and logs.")]
Config = Annotated[
    Path | None,
    typer.Option(
        metavar="CONFIG",
        parser=find_config,
        help="A YAML file, or a preset by name (`restrain presets`).",
        show_default="by --preset",
        rich_help_panel=TRAINING,
    ),
]
Method = Annotated[
    str | None,
    typer.Option(help="restrain, ttrl, ettrl.", show_default="restrain, or CONFIG's", rich_help_panel=TRAINING),
]
Preset = Annotated[
    str | None,
    typer.Option(
        help="paper or ttrl_protocol, for the known set of nearest size.",
        show_default="paper",
        rich_help_panel=TRAINING,
    ),
]
Steps = Annotated[int | None, typer.Option(min=1, help="Training steps.", rich_help_panel=TRAINING)]
Epochs = Annotated[int | None, typer.Option(min=1, help="Passes over all problems.", rich_help_panel=TRAINING)]
Votes = Annotated[
    int,
    typer.Option(
        min=2,
        help="Rollouts per problem of each vote. Answers are voted at T 0.6, top-p 0.95.",
        rich_help_panel=TRAINING,
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=NUMBER",
        help="Limits that end a run early: kl, template, entropy, patience. Repeatable.",
        rich_help_panel=TRAINING,
    ),
]
NoStop = Annotated[bool, typer.Option("--no-stop", help="Never end a run early.", rich_help_panel=TRAINING)]
Column = Annotated[
    str | None,
    typer.Option(help="Column that holds the problem.", show_default="problem, question", rich_help_panel=PROBLEMS),
]
Split = Annotated[str, typer.Option(help="Split of a hub data set.", rich_help_panel=PROBLEMS)]
Benchmarks = Annotated[
    Path | None,
    typer.Option(
        "--benchmark-dir", help="Local copies of benchmarks, NAME.jsonl.", show_default="hub", rich_help_panel=PROBLEMS
    ),
]
Boxed = Annotated[
    bool | None,
    typer.Option(
        "--boxed/--no-boxed",
        help="Ask for a boxed answer.",
        show_default="with a chat template",
        rich_help_panel=PROBLEMS,
    ),
]
Chat = Annotated[
    bool | None,
    typer.Option(
        "--chat/--no-chat",
        help="Use the tokenizer's chat template.",
        show_default="as CONFIG says",
        rich_help_panel=PROBLEMS,
    ),
]
Heldout = Annotated[
    list[str] | None,
    typer.Option(help="A benchmark that is not trained on, evaluated too. Repeatable.", rich_help_panel=EVALUATION),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="As for `restrain train`. Repeatable.", rich_help_panel=TRAINING),
]


def choose_preset(config: Path | None, preset: str | None) -> str:
    """The name of the preset. Raises ConfigError where a configuration is given too."""
    if config is not None and preset is not None:
        raise ConfigError("--config and --preset are both given. Give one: a preset is a configuration.")
    return preset or "paper"


def choose_rules(items: list[str] | None, no_stop: bool) -> "StopRules | None":
    """The stop rules; None for none. Raises ConfigError where both options are given."""
    from test_time.stopping import parse_stop_rules  # noqa: PLC0415 - keeps `test-time --help` quick

    if no_stop and items:
        raise ConfigError("--stop and --no-stop are both given. Give one.")
    return None if no_stop else parse_stop_rules(items or [])


def heldout_sources(words: list[str] | None, folder: Path | None) -> "tuple[Source, ...]":
    """Benchmarks by name or path."""
    from test_time.problems import Source  # noqa: PLC0415 - keeps `test-time --help` quick

    return tuple(Source(word, folder=folder) for word in words or [])


def gold_by_set(items: list[str] | None, names: list[str]) -> dict[str, Path]:
    """`aime24=gold.jsonl` as paths by set. Raises ConfigError for a set that is not among `names`."""
    found: dict[str, Path] = {}
    for item in items or []:
        name, equals, path = item.partition("=")
        if not equals or name not in names:
            raise ConfigError(f"--gold {item!r}: give SET=FILE; sets are {', '.join(names)}.")
        found[name] = Path(path)
    return found
