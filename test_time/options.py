"""The options that `test-time adapt` and `test-time sweep` share, and what becomes of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from restrain_openrlhf.config.command_line import find_config
from restrain_openrlhf.errors import ConfigError

if TYPE_CHECKING:
    from test_time.problems import Source
    from test_time.stopping import StopRules

HOW = "How it is trained"
WHAT = "How problems are read and put"
WORTH = "What it was worth (read after training)"
Model = Annotated[str, typer.Option(help="The model to adapt: a hub id or a local folder.")]
Out = Annotated[Path, typer.Option(help="Folder for predictions.jsonl, the adapted model, report and all else.")]
Config = Annotated[
    Path | None,
    typer.Option(
        metavar="CONFIG",
        parser=find_config,
        help="A YAML file, or a preset by name (`restrain presets`).",
        show_default="by --preset",
        rich_help_panel=HOW,
    ),
]
Method = Annotated[
    str | None, typer.Option(help="restrain, ttrl, ettrl.", show_default="restrain, or CONFIG's", rich_help_panel=HOW)
]
Preset = Annotated[
    str | None,
    typer.Option(help="paper or ttrl_protocol, of the nearest size of set.", show_default="paper", rich_help_panel=HOW),
]
Steps = Annotated[int | None, typer.Option(min=1, help="Training steps in all.", rich_help_panel=HOW)]
Epochs = Annotated[int | None, typer.Option(min=1, help="Times every problem is trained on.", rich_help_panel=HOW)]
Votes = Annotated[int, typer.Option(min=2, help="Rollouts of each vote, before and after.", rich_help_panel=HOW)]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=NUMBER",
        help="Limits that end a run early: kl, template, entropy, patience. Repeatable.",
        rich_help_panel=HOW,
    ),
]
NoStop = Annotated[bool, typer.Option("--no-stop", help="Never end a run early.", rich_help_panel=HOW)]
Column = Annotated[
    str | None,
    typer.Option(help="Column that holds the problem.", show_default="problem, question", rich_help_panel=WHAT),
]
Split = Annotated[str, typer.Option(help="Split of a hub data set.", rich_help_panel=WHAT)]
Benchmarks = Annotated[
    Path | None,
    typer.Option(
        "--benchmark-dir", help="Local copies of benchmarks, NAME.jsonl.", show_default="hub", rich_help_panel=WHAT
    ),
]
Boxed = Annotated[
    bool | None,
    typer.Option(
        "--boxed/--no-boxed", help="Ask for a boxed answer.", show_default="with a chat template", rich_help_panel=WHAT
    ),
]
Chat = Annotated[
    bool | None,
    typer.Option(
        "--chat/--no-chat",
        help="Use the tokenizer's chat template.",
        show_default="as CONFIG says",
        rich_help_panel=WHAT,
    ),
]
Heldout = Annotated[
    list[str] | None,
    typer.Option(help="A benchmark with answers, to see what was damaged. Repeatable.", rich_help_panel=WORTH),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="As for `restrain train`. Repeatable.", rich_help_panel=HOW),
]


def choose_protocol(config: Path | None, preset: str | None) -> str:
    """The preset's name. Raises ConfigError where a configuration is given too."""
    if config is not None and preset is not None:
        raise ConfigError("--config and --preset are both given. Give one: a preset is a configuration.")
    return preset or "paper"


def choose_rules(items: list[str] | None, no_stop: bool) -> "StopRules | None":
    """The limits; None for none. Raises ConfigError where both are asked for."""
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
