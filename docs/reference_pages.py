"""The reference pages that are made from the code: configuration keys from the models, commands from typer."""

import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.cli import get_docs_for_click

import test_time.cli
from restrain_openrlhf.cli import main as restrain
from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.method.settings import SETTINGS
from restrain_openrlhf.reward.settings import ServiceConfig

COMMANDS = {"restrain": restrain.app, "test-time": test_time.cli.app}
HEADER = "| key | type | default | meaning |\n|---|---|---|---|\n"


@dataclass(frozen=True)
class Key:
    """One key of a configuration file; blocks are joined by dots."""

    name: str
    field: FieldInfo

    def row(self) -> str:
        """A line of the table."""
        meaning = (self.field.description or "").replace("|", "\\|")
        return f"| `{self.name}` | {type_words(self.field.annotation)} | {_default(self.field)} | {meaning} |\n"


def pages() -> Mapping[str, str]:
    """Markdown by the page's path below docs/."""
    return {"reference/configuration.md": configuration_page(), "reference/commands.md": commands_page()}


def configuration_page() -> str:
    """Every key of a run, of the service, and of each method's settings."""
    parts = [
        "# Configuration keys\n\nMade from the models that read the files. A key that is not here is refused.\n",
        "## A run\n\n`restrain train CONFIG`. A run by `python -m restrain_openrlhf.hook.train_ppo_ray` has the "
        "same keys but `run_dir` and `openrlhf`.\n",
        table(RunConfig),
        "`extends: FILE` (a path, relative to this file) merges this file over another, block by block, one level.\n",
        "## The scoring service\n\n`restrain serve --config FILE`.\n",
        table(ServiceConfig),
        "## Methods\n\nThe keys of the `method:` block. `name` chooses the method.\n",
    ]
    for name, settings in SETTINGS.items():
        parts += [f"### `{name}`\n\n{first_line(settings)}\n", table(settings)]
    return "\n".join(parts)


def commands_page() -> str:
    """Every command with its options, as `--help` has them."""
    intro = "# Commands\n\nMade from the commands themselves; `--help` after any of them prints the same.\n\n"
    return intro + "\n".join(_commands(name, app) for name, app in COMMANDS.items())


def _commands(name: str, app: typer.Typer) -> str:
    command = typer.main.get_command(app)
    return get_docs_for_click(obj=command, ctx=typer.Context(command), name=name, indent=1)


def table(model: type[BaseModel]) -> str:
    """The keys of a model, those of its blocks included."""
    return HEADER + "".join(key.row() for key in keys(model))


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[Key]:
    """Every key that a user may write. A block has a row for each of its keys, in the place of its own."""
    for name, field in model.model_fields.items():
        block = _block(field.annotation)
        if block is None:
            yield Key(prefix + name, field)
        else:
            yield from keys(block, f"{prefix}{name}.")


def _block(annotation: Any) -> type[BaseModel] | None:
    """The model of a nested block. Methods' settings are no block here: they have tables of their own."""
    for part in (annotation, *typing.get_args(annotation)):
        if isinstance(part, type) and issubclass(part, BaseModel) and part not in SETTINGS_BASES:
            return part
    return None


SETTINGS_BASES = frozenset(base for settings in SETTINGS.values() for base in settings.__mro__)


def type_words(annotation: Any) -> str:
    """The type as a reader of YAML would say it."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return type_words(arguments[0])
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return ", ".join(dict.fromkeys(type_words(part) for part in arguments))
    plain = origin or annotation
    return "[a block](#methods)" if plain in SETTINGS_BASES else WORDS[plain]


WORDS: Mapping[Any, str] = {
    bool: "true, false",
    int: "whole number",
    float: "number",
    str: "text",
    Path: "path",
    tuple: "list",
    Mapping: "keys and values",
    types.NoneType: "null",
}


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return "none" if value in ({}, ()) else f"`{_yaml(value)}`"


def _yaml(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:.4g}" if isinstance(value, float) and value >= 1e-3 else str(value)  # noqa: PLR2004


def first_line(model: type) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((model.__doc__ or "").split("\n\n")[0].split())
