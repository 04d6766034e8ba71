"""Reads what users type: a configuration's file or preset, `--set KEY=VALUE`, `--answers` and `--agent`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

from restrain_openrlhf.answers import AnswerKind, parse_kind
from restrain_openrlhf.config.documents import CONFIGS, dump_yaml, parse_yaml, typed
from restrain_openrlhf.config.yaml_file import Agent
from restrain_openrlhf.errors import ConfigError, did_you_mean

# The help of `--answers`, the same on every command that has it.
ANSWERS = "Kind of answer: its name, such as choice, or a block such as '{name: text, read: tag}'."


def preset_names() -> list[str]:
    """The names of all presets, sorted. Files with an underscore only serve to be extended."""
    files = (path for path in CONFIGS.rglob("*.yaml") if not path.name.startswith("_"))
    return sorted(path.relative_to(CONFIGS).with_suffix("").as_posix() for path in files)


def find_config(word: str) -> Path:
    """The configuration file that a user named by its path or as a preset.

    Raises ConfigError, with the nearest names, where the word is neither.
    """
    path, names = Path(word), preset_names()
    if word in names and not path.is_file():
        return CONFIGS / f"{word}.yaml"
    # An absolute path cannot be a preset's name. Reading it raises the error if there is no such file.
    if path.exists() or path.is_absolute():
        return path
    hint = did_you_mean(word.removeprefix("configs/").removesuffix(".yaml"), names, n=3)
    raise ConfigError(f"{word}: no such file, and no preset of this name.{hint} `restrain presets` lists all presets.")


def parse_overrides(items: Iterable[str], example: str = "method.eps=1e-6") -> dict[str, object]:
    """The values of `--set KEY=VALUE`, read as YAML, by their keys. Of equal keys the last one counts.

    Raises ConfigError naming an item of another form, with an `example`, which every method accepts by default.
    """
    found: dict[str, object] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {item!r}: give KEY=VALUE, for example {example}.")
        found[key.strip()] = parse_yaml(value, f"--set {item!r}")
    return found


def choose_kind(word: str, settings: Mapping[str, object] | None = None) -> AnswerKind:
    """The kind of answer of `--answers`: a name, or a block such as {name: text, read: tag}; `settings` override it.

    Raises ConfigError naming what is wrong.
    """
    found = parse_yaml(word, f"--answers {word!r}")
    block = found if isinstance(found, dict) else {"name": word}
    try:
        return parse_kind({**block, **(settings or {})})
    except ConfigError as error:
        raise ConfigError(f"--answers: {error}") from None


def choose_agent(word: str) -> Agent:
    """The agent of `--agent`: its file, or a block such as {path: agent.py, turns: all}. Raises ConfigError."""
    block = parse_yaml(word, f"--agent {word!r}") if word.startswith("{") else {"path": word}
    return typed(Agent, block, f"--agent {word!r}")


def kind_word(kind: AnswerKind) -> str:
    """The word that `choose_kind` reads: the name, with the settings that differ from the defaults."""
    changed = kind.model_dump(mode="json", exclude_defaults=True, exclude={"name"})
    return as_yaml({"name": kind.name, **changed}) if changed else kind.name


def agent_word(agent: Agent) -> str:
    """The word that `choose_agent` reads: the path, or the block where more is set."""
    block = agent.model_dump(mode="json", exclude_defaults=True)
    return as_yaml(block) if block.keys() - {"path"} else str(agent.path)


# Fields of options that a command gets as a word: they hold what the word says, and are written as that word again.
KindOption = Annotated[
    AnswerKind,
    BeforeValidator(lambda given: choose_kind(given) if isinstance(given, str) else given),
    PlainSerializer(kind_word),
]
AgentOption = Annotated[
    Agent,
    BeforeValidator(lambda given: choose_agent(given) if isinstance(given, str) else given),
    PlainSerializer(agent_word),
]


def override_words(overrides: Mapping[str, object]) -> list[str]:
    """The words `--set KEY=VALUE` that `parse_overrides` reads."""
    return [word for key, value in overrides.items() for word in ("--set", f"{key}={as_yaml(value)}")]


def as_yaml(value: object) -> str:
    """A value as YAML on one line."""
    return dump_yaml(value, default_flow_style=True, width=float("inf")).removesuffix("...\n").strip()
