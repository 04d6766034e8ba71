"""The reference pages that are made from the code: configuration keys from the models, commands from typer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import typer
from pydantic import BaseModel
from typer.cli import get_docs_for_click

import test_time.cli
from restrain_openrlhf.cli import main as restrain
from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.method import METHODS
from restrain_openrlhf.reward.service_config import ServiceConfig

COMMANDS = {"restrain": restrain.app, "test-time": test_time.cli.app}
HEADER = "| key | type | default | meaning |\n|---|---|---|---|\n"
# JSON schema's types, as a reader of YAML would say them.
WORDS = {
    "boolean": "true, false",
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "path": "path",
    "array": "list",
    "object": "keys and values",
    "null": "null",
}
# The one block whose keys depend on its `name`.
METHOD = "method"


def pages() -> Mapping[str, str]:
    """Markdown by the page's path below docs/."""
    return {"reference/configuration.md": configuration_page(), "reference/commands.md": commands_page()}


def configuration_page() -> str:
    """Every key of a run, of the service, and of each method's settings."""
    parts = [
        "# Configuration keys\n\nMade from the models that read the files. A key that is not here is refused.\n",
        "## A run\n\n`restrain train CONFIG`. A run by `python -m restrain_openrlhf.hook.train_ppo_ray` has the "
        "same keys but `run_dir`, `openrlhf` and `share_gpus`.\n",
        table(RunConfig),
        "`extends: FILE` (a path, relative to this file) merges this file over another, block by block, one level.\n",
        "## The scoring service\n\n`restrain serve --config FILE`.\n",
        table(ServiceConfig),
        "## Methods\n\nThe keys of the `method:` block. `name` chooses the method.\n",
    ]
    for name, settings in METHODS.items():
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
    schema = model.model_json_schema()
    return HEADER + "".join(key.row() for key in keys(schema, schema.get("$defs", {})))


@dataclass(frozen=True)
class Key:
    """One key of a configuration file, blocks joined by dots, and its JSON schema."""

    name: str
    schema: Mapping[str, Any]
    required: bool

    def row(self) -> str:
        """A line of the table."""
        meaning = self.schema.get("description", "").replace("|", "\\|")
        return f"| `{self.name}` | {type_words(self.schema)} | {self._default()} | {meaning} |\n"

    def _default(self) -> str:
        if "default" not in self.schema:
            return "required" if self.required else "none"
        value = self.schema["default"]
        words = {None: "null", True: "true", False: "false"}
        return f"`{words[value] if value is None or isinstance(value, bool) else value}`"


def keys(schema: Mapping[str, Any], definitions: Mapping[str, Any], prefix: str = "") -> Iterator[Key]:
    """Every key that a user may write. A block has a row for each of its keys, in the place of its own."""
    for name, field in schema["properties"].items():
        block = definitions.get(_reference(field), {}) if name != METHOD else {}
        if "properties" in block:
            yield from keys(block, definitions, f"{prefix}{name}.")
        else:
            yield Key(prefix + name, field, required=name in schema.get("required", ()))


def _reference(field: Mapping[str, Any]) -> str:
    """The definition that a field points to, itself or beside null."""
    pointers = [part["$ref"] for part in (field, *field.get("anyOf", ())) if "$ref" in part]
    return pointers[0].rsplit("/", 1)[-1] if pointers else ""


def type_words(field: Mapping[str, Any]) -> str:
    """The type in words, or what may be chosen."""
    if "anyOf" in field:
        return ", ".join(dict.fromkeys(type_words(part) for part in field["anyOf"]))
    if "$ref" in field:
        return "[a block](#methods)"
    choices = field.get("enum", [field["const"]] if "const" in field else [])
    return ", ".join(f"`{choice}`" for choice in choices) or WORDS[field.get("format", field["type"])]


def first_line(model: type) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((model.__doc__ or "").split("\n\n")[0].split())
