"""What a user types to choose a configuration: a file or a preset's name, and `--set KEY=VALUE` on top of it."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from restrain_openrlhf.answers import AnswerKind, parse_kind
from restrain_openrlhf.config.shipped import CONFIGS
from restrain_openrlhf.errors import ConfigError, did_you_mean

# What `--answers` is, on every command that has it.
ANSWERS = "Kind of answer: its name, such as choice, or a block such as '{name: text, read: tag}'."


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
    hint = did_you_mean(word.removeprefix("configs/").removesuffix(".yaml"), names, n=3)
    raise ConfigError(f"{word}: no such file, and no preset of this name.{hint} `restrain presets` lists all presets.")


def parse_overrides(items: Iterable[str], example: str = "method.eps=1e-6") -> dict[str, object]:
    """Keys, dots kept, and values read as YAML; of equal keys the last counts.

    Raises ConfigError naming the item that is none, with an `example` that every method accepts.
    """
    found: dict[str, object] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {item!r}: give KEY=VALUE, for example {example}.")
        try:
            found[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ConfigError(f"--set {item!r}: the value is not valid YAML ({error}).") from None
    return found


def choose_kind(word: str, settings: Mapping[str, object] | None = None) -> AnswerKind:
    """The kind of answer of `--answers`: a name, or a block such as {name: text, read: tag}; `settings` go on top.

    Raises ConfigError naming what is wrong with it.
    """
    try:
        found = yaml.safe_load(word)
    except yaml.YAMLError as error:
        raise ConfigError(f"--answers {word!r}: is not valid YAML ({error}).") from None
    block = found if isinstance(found, dict) else {"name": word}
    try:
        return parse_kind({**block, **(settings or {})})
    except ConfigError as error:
        raise ConfigError(f"--answers: {error}") from None


def kind_word(kind: AnswerKind) -> str:
    """As `choose_kind` reads it: the name, with the settings that differ from the defaults."""
    changed = kind.model_dump(mode="json", exclude_defaults=True, exclude={"name"})
    return _as_yaml({"name": kind.name, **changed}) if changed else kind.name


def override_words(overrides: Mapping[str, object]) -> list[str]:
    """`--set KEY=VALUE` for each, as `parse_overrides` reads them."""
    return [word for key, value in overrides.items() for word in ("--set", f"{key}={_as_yaml(value)}")]


def _as_yaml(value: object) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=float("inf")).removesuffix("...\n").strip()
