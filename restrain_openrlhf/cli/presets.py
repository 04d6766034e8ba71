"""`restrain presets`, and the argument of every command that takes a preset's name or a file."""

from pathlib import Path
from typing import Annotated

import typer

from restrain_openrlhf.config.presets import find_config, preset_names

ConfigFile = Annotated[
    Path,
    typer.Argument(metavar="CONFIG", parser=find_config, help="A YAML file, or a preset by name (`restrain presets`)."),
]


def presets() -> None:
    """List the presets that come with this package; each can stand for CONFIG."""
    typer.echo("\n".join(preset_names()))
