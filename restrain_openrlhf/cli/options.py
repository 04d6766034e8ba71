"""Options that several commands share, and commands whose options are the fields of a model."""

import re
from collections.abc import Callable
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from rich.console import Console

from restrain_openrlhf.config.command_line import find_config
from restrain_openrlhf.data.outputs import output_file, output_folder
from restrain_openrlhf.errors import ConfigError

Options = TypeVar("Options", bound=BaseModel)

ConfigFile = Annotated[
    Path,
    typer.Argument(metavar="CONFIG", parser=find_config, help="A YAML file, or a preset's name (`restrain presets`)."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one key, such as method.kappa=2. Repeatable."),
]
GOLD = "Gold answers, JSON Lines or CSV: rows {problem, answer} or {id, answer}, or a .gold.jsonl file."
ShardOption = Annotated[str, typer.Option("--shard", metavar="I/K", help="Run only shard I of K, counted from 0.")]
BenchmarkDir = Annotated[
    Path | None, typer.Option(help="Folder with local copies, NAME.jsonl.", show_default="the hub")
]


def to_file(help_text: str, *names: str, **more: Any) -> Any:
    """An option for a file that is written, checked as the words are read: before anything is computed."""
    return typer.Option(*names, help=help_text, callback=_checked(output_file), **more)


def to_folder(help_text: str, *names: str, **more: Any) -> Any:
    """An option for a folder that is written into, checked as a file is."""
    return typer.Option(*names, help=help_text, callback=_checked(output_folder), **more)


def _checked(check: Callable[[Path], Path]) -> Callable[[Path | None], Path | None]:
    def callback(path: Path | None) -> Path | None:
        if path is not None:
            check(path)
        return path

    return callback


def wide_console() -> Console:
    """Where tables are printed: as wide as the terminal, and 160 columns where there is none."""
    return Console(width=None if Console().is_terminal else 160)


def parse_shard(text: str) -> tuple[int, int]:
    """`0/4` as (0, 4). Raises ConfigError for anything else."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not int(match[1]) < int(match[2]):
        raise ConfigError(f"--shard {text!r}: give I/K with 0 <= I < K, for example 0/4.")
    return int(match[1]), int(match[2])


def with_options(model: type[Options]) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Makes a function of a model a command, with an option for each field: its description, limits and default."""
    parameters = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.is_required() else field.default,
            annotation=Annotated[field.annotation, _option(field)],
        )
        for name, field in model.model_fields.items()
    ]

    def as_command(function: Callable[[Options], None]) -> Callable[..., None]:
        def command(**values: Any) -> None:
            function(model(**values))

        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return command

    return as_command


def _option(field: FieldInfo) -> Any:
    limits = {name: getattr(limit, name) for limit in field.metadata for name in ("ge", "le") if hasattr(limit, name)}
    return typer.Option(help=field.description, min=limits.get("ge"), max=limits.get("le"))
