"""Finds OpenRLHF's program and its flags in a user's shell command, script or RayJob."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import yaml

from restrain_openrlhf.commands.integrate.shell import ShellCommand, Variables, Word, commands
from restrain_openrlhf.errors import ConfigError

HOST_MODULE, HOOKED_MODULE = "openrlhf.cli.train_ppo_ray", "restrain_openrlhf.hook.train_ppo_ray"
_PROGRAM = re.compile(r"(?:.*/)?openrlhf/cli/(train_\w+)\.py")
_OTHER = re.compile(r"openrlhf\.cli\.\w+")
_ESCAPE = {'"': re.compile(r"\\(?!\r?\n)"), "'": re.compile("''")}
# Launchers start a process for each GPU, but in this program Ray starts the processes.
_LAUNCHERS = ("deepspeed", "torchrun", "accelerate", "mpirun")


@dataclass(frozen=True)
class Written:
    """The text of a command, the word that names OpenRLHF's program (or ours), and the words after it."""

    text: str
    program: Word
    flags: tuple[Word, ...]

    @classmethod
    def of_command(cls, command: str) -> Self:
        """From a command. If it is one line, each flag is moved to a line of its own, so that a diff is readable.

        Raises ConfigError if there is no such command, or it cannot be read.
        """
        found = cls._only([(0, len(command), False)], command, "--command")
        if "\n" in command.strip():
            return found
        for word in reversed(found.flags):
            if word.text.startswith("--") and word.start > found.program.start:
                command = f"{command[: word.start].rstrip()} \\\n    {command[word.start :]}"
        return cls._only([(0, len(command), False)], f"{command.strip()}\n", "--command")

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """From a shell or Slurm script, or the YAML file of a RayJob. Raises ConfigError; see `of_command`."""
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
            raise ConfigError(
                f"{where}: has {len(found)} commands with {HOST_MODULE}. Give one of them with --command."
            )
        if not found:
            raise ConfigError(
                f"{where}: no command with `-m {HOST_MODULE}`, OpenRLHF's reinforcement learning, was found; RESTRAIN "
                "works only inside that. Give the whole command as you start it."
            )
        return cls(text, *found[0])


def _entry_points(text: str, path: Path) -> Iterator[tuple[int, int, bool]]:
    """The begin and end of each scalar in a YAML file that names the program, and whether YAML folds its lines."""
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: is not valid YAML: {error}") from None
    for scalar in (each for document in documents for each in _scalars(document)):
        if scalar.value.strip() in (HOST_MODULE, HOOKED_MODULE):
            raise ConfigError(f"{path}: writes the command as a list of words. Give it in one line with --command.")
        if HOST_MODULE in scalar.value or HOOKED_MODULE in scalar.value:
            start, end = scalar.start_mark.index, scalar.end_mark.index
            quoted = 1 if scalar.style in ("'", '"') else 0
            if quoted and _ESCAPE[scalar.style].search(text, start + 1, end - 1):
                raise ConfigError(
                    f"{path}: has quotes or escapes inside the quotes of its YAML. Give the command with --command."
                )
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
    """For each command with the program: the program's word, and the words after it.

    Quoted commands are searched, too.
    """
    variables, unread, has_program, after_program = Variables(), list[int](), False, False
    for command in commands(text, start, end, folds, variables):
        words = command.words
        if after_program and words and words[0].text.startswith("--"):
            line = text.count("\n", 0, words[0].start) + 1
            raise ConfigError(f"{where}, line {line}: begins with a flag. End the previous line with a backslash.")
        place = next((number for number, word in enumerate(words) if _is_program(word.text, where)), None)
        after_program = place is not None or (after_program and not words)
        unread += [] if command.stray is None else [command.stray]
        if place is not None:
            _refuse_launcher([word.text for word in words[:place]], where)
            _refuse_unread(text, command, variables, where)
            has_program = True
            yield words[place], words[place + 1 :]
            continue
        for word in words:
            if HOST_MODULE in word.text or HOOKED_MODULE in word.text:
                _refuse_longer_word(text[word.start : word.end], where)
                has_program = True
                yield from _commands(text, word.start + 1, word.end - 1, folds, where)
    if unread and not has_program:
        raise _not_read(text, unread[0], where)


def _refuse_longer_word(raw: str, where: str) -> None:
    """Raises ConfigError unless a word with the program in it is one whole command in quotes."""
    if raw[0] not in "'\"" or raw[-1] != raw[0] or f"\\{raw[0]}" in raw:
        raise ConfigError(
            f"{where}: has the program inside a longer word, or inside nested quotes. Give the command alone with "
            f"--command, and the program as `-m {HOST_MODULE}`."
        )


def _refuse_unread(text: str, command: ShellCommand, variables: Variables, where: str) -> None:
    if command.stray is not None:
        raise _not_read(text, command.stray, where)
    unreadable = next((word for word in command.words if variables.is_unreadable(word)), None)
    if unreadable is not None:
        raise ConfigError(
            f"{where}: the flags in {unreadable.text} cannot be read, because its value has quotes or backslashes "
            "inside, or is put together from several parts. Give the command with --command, and those flags in it."
        )


def _not_read(text: str, place: int, where: str) -> ConfigError:
    line = text.count("\n", 0, place) + 1
    return ConfigError(
        f"{where}, line {line}: a quote is opened here and never closed, or a word cannot be parsed: "
        f"{text[place:].splitlines()[0]:.40}. If a shell can read it, give the training command alone with --command."
    )


def _is_program(word: str, where: str) -> bool:
    if word in (HOST_MODULE, HOOKED_MODULE):
        return True
    by_path = _PROGRAM.fullmatch(word)
    if by_path and by_path[1] == "train_ppo_ray":
        raise ConfigError(
            f"{where}: starts {word} by its path. Write `-m {HOST_MODULE}` instead, which starts the same program."
        )
    if by_path or _OTHER.fullmatch(word):
        raise ConfigError(
            f"{where}: starts {word}, but RESTRAIN works only inside {HOST_MODULE}, OpenRLHF's reinforcement learning."
        )
    return False


def _refuse_launcher(before: list[str], where: str) -> None:
    for launcher in _LAUNCHERS:
        if any(word.rpartition("/")[2] == launcher for word in before):
            raise ConfigError(
                f"{where}: {launcher} would start {HOST_MODULE} once per GPU, but {HOST_MODULE} starts Ray, which uses "
                f"all GPUs itself. Start it with `python -m {HOST_MODULE}`."
            )
