"""Configurations by name: a preset is a file of configs/, named by its path there without the ending."""

import difflib
from pathlib import Path

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.shipped import CONFIGS


def preset_names() -> list[str]:
    """All presets, in order; files with an underscore are what others extend."""
    files = (path for path in CONFIGS.rglob("*.yaml") if not path.name.startswith("_"))
    return sorted(path.relative_to(CONFIGS).with_suffix("").as_posix() for path in files)


def find_config(word: str) -> Path:
    """The file that a user named: by its path, or as a preset by its name.

    Raises ConfigError, with the nearest names, where it is neither.
    """
    path, names = Path(word), preset_names()
    if word in names and not path.is_file():
        return CONFIGS / f"{word}.yaml"
    # An absolute path can only be a file's; whoever reads it says whether it is there.
    if path.exists() or path.is_absolute():
        return path
    near = difflib.get_close_matches(word.removeprefix("configs/").removesuffix(".yaml"), names, n=3)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise ConfigError(f"{word}: no such file, and no preset of this name.{hint} `restrain presets` lists all presets.")
