"""A user's command as it is written: each word with its place in a shell command, a script or a RayJob."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import yaml

from restrain_openrlhf.errors import ConfigError

HOST, OURS = "openrlhf.cli.train_ppo_ray", "restrain_openrlhf.hook.train_ppo_ray"
_PROGRAM = re.compile(r"(?:.*/)?openrlhf/cli/(train_\w+)\.py")
_OTHER = re.compile(r"openrlhf\.cli\.\w+")
# They start a process for each GPU; this program starts Ray, which starts them.
_LAUNCHERS = ("deepspeed", "torchrun", "accelerate", "mpirun")
_TOKEN = re.compile(
    r"""(?P<gap>(?:[ \t\r]|\\\r?\n)+)
    |(?P<comment>(?<!\S)\#[^\n]*)
    |(?P<end>\n|&&|\|\||\d*[<>]+&?|[;&|()])
    |(?P<word>(?:\$\([^()]*\)|`[^`]*`|\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s'"\\;&|<>()`$]|\$(?!\())+)
    |(?P<stray>.)""",
    re.VERBOSE | re.DOTALL,
)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})")


@dataclass(frozen=True)
class Word:
    """A word without its quotes, variables put in as far as they are known, and where it stands in the text."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Written:
    """The text, the word that is OpenRLHF's program (or ours), and the words after it."""

    text: str
    program: Word
    flags: tuple[Word, ...]

    @classmethod
    def of_command(cls, command: str) -> Self:
        """A command; where it is one line, each flag gets a line of its own, so that a diff can be read.

        Raises ConfigError where there is no such command, or it cannot be read.
        """
        found = cls._only([(0, len(command), False)], command, "--command")
        if "\n" in command.strip():
            return found
        for word in reversed(found.flags):
            if word.text.startswith("--"):
                command = f"{command[: word.start].rstrip()} \\\n    {command[word.start :]}"
        return cls._only([(0, len(command), False)], f"{command.strip()}\n", "--command")

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """A shell or Slurm script, or the YAML file of a RayJob. Raises ConfigError as `of_command`."""
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ConfigError(f"{path}: no such file. Check the path.") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{path}: is not a text file. Give a script or a RayJob's YAML file.") from None
        if path.suffix in (".yaml", ".yml"):
            return cls._only(list(_entry_points(text, path)), text, str(path))
        return cls._only([(0, len(text), False)], text, str(path))

    @classmethod
    def _only(cls, spans: list[tuple[int, int, bool]], text: str, where: str) -> Self:
        found = [each for start, end, folds in spans for each in _commands(text, start, end, folds, where)]
        if len(found) > 1:
            raise ConfigError(f"{where}: has {len(found)} commands with {HOST}. Give one of them with --command.")
        if not found:
            raise ConfigError(
                f"{where}: no command with `-m {HOST}`, OpenRLHF's reinforcement learning, was found; RESTRAIN works "
                "only inside that. Give the whole command as you start it."
            )
        return cls(text, *found[0])


def _entry_points(text: str, path: Path) -> Iterator[tuple[int, int, bool]]:
    """Where the scalars of a YAML file that name the program begin and end, and whether their lines are one line."""
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: is not valid YAML: {error}") from None
    for scalar in (each for document in documents for each in _scalars(document)):
        if scalar.value.strip() in (HOST, OURS):
            raise ConfigError(f"{path}: writes the command as a list of words. Give it in one line with --command.")
        if HOST in scalar.value or OURS in scalar.value:
            start, end = scalar.start_mark.index, scalar.end_mark.index
            quoted = 1 if scalar.style in ("'", '"') else 0
            yield (
                start + quoted if scalar.style not in ("|", ">") else text.index("\n", start),
                end - quoted,
                scalar.style != "|",
            )


def _scalars(node: yaml.Node | None) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.SequenceNode):
        yield from (each for inner in node.value for each in _scalars(inner))
    elif isinstance(node, yaml.MappingNode):
        yield from (each for _, inner in node.value for each in _scalars(inner))


def _commands(text: str, start: int, end: int, folds: bool, where: str) -> Iterator[tuple[Word, tuple[Word, ...]]]:
    """The program of each command that names it, and the words after it; a quoted command is looked into."""
    known: dict[str, str] = {}
    for words in _split(text, start, end, folds, where, known):
        if words and words[0].text.startswith("--"):
            line = text.count("\n", 0, words[0].start) + 1
            raise ConfigError(f"{where}, line {line}: begins with a flag. End the previous line with a backslash.")
        place = next((number for number, word in enumerate(words) if _is_program(word.text, where)), None)
        if place is not None:
            _refuse_launcher([word.text for word in words[:place]], where)
            yield words[place], tuple(words[place + 1 :])
            continue
        for word in words:
            if HOST in word.text or OURS in word.text:
                raw = text[word.start : word.end]
                if raw[0] not in "'\"" or raw[-1] != raw[0] or f"\\{raw[0]}" in raw:
                    raise ConfigError(
                        f"{where}: has the command inside nested quotes. Give the command alone with --command."
                    )
                yield from _commands(text, word.start + 1, word.end - 1, folds, where)


def _is_program(word: str, where: str) -> bool:
    if word in (HOST, OURS):
        return True
    by_path = _PROGRAM.fullmatch(word)
    if by_path and by_path[1] == "train_ppo_ray":
        raise ConfigError(
            f"{where}: starts {word} by its path. Write `-m {HOST}` instead, which starts the same program."
        )
    if by_path or _OTHER.fullmatch(word):
        raise ConfigError(
            f"{where}: starts {word}, but RESTRAIN works only inside {HOST}, OpenRLHF's reinforcement learning."
        )
    return False


def _refuse_launcher(before: list[str], where: str) -> None:
    for launcher in _LAUNCHERS:
        if any(word.rpartition("/")[2] == launcher for word in before):
            raise ConfigError(
                f"{where}: {launcher} would start {HOST} once per GPU, but {HOST} starts Ray, which uses all GPUs "
                f"itself. Start it with `python -m {HOST}`."
            )


def _split(text: str, start: int, end: int, folds: bool, where: str, known: dict[str, str]) -> Iterator[list[Word]]:
    """The words of each command between two places; what is assigned on the way is put in for its variable."""
    words: list[Word] = []
    for token in _TOKEN.finditer(text, start, end):
        if token.lastgroup == "stray":
            line = text.count("\n", 0, token.start()) + 1
            raise ConfigError(
                f"{where}, line {line}: a quote is opened here and never closed, or a word cannot be parsed."
            )
        if token.lastgroup == "word":
            word = _unquoted(token[0], known)
            words.append(Word(word, token.start(), token.end()))
            if assigned := _ASSIGNMENT.fullmatch(word):
                known[assigned[1]] = assigned[2]
        elif token.lastgroup == "end" and not (folds and token[0] == "\n"):
            yield words
            words = []
    yield words


def _unquoted(raw: str, known: Mapping[str, str]) -> str:
    if not raw.startswith("'"):
        raw = _VARIABLE.sub(lambda found: known.get(found[1] or found[2], found[3] or found[0]), raw)
    return " ".join(shlex.split(raw.replace("\\\n", ""))) if raw[0] != "$" or "(" not in raw else raw
