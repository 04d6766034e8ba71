"""Finds OpenRLHF's program and its flags in a user's shell command, script or RayJob."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import yaml

from restrain_openrlhf.commands.integrate.shell import BEFORE_COMMAND, ShellCommand, Variables, Word, commands
from restrain_openrlhf.errors import ConfigError

HOST_MODULE, HOOKED_MODULE = "openrlhf.cli.train_ppo_ray", "restrain_openrlhf.hook.train_ppo_ray"
_PROGRAM = re.compile(r"(?:.*/)?openrlhf/cli/(train_\w+)\.py|(?:.*/)?(train_ppo_ray)\.py")
# The words between which and a module Python takes nothing else: -m, -um, and deepspeed's --module.
_MODULE_FOLLOWS = re.compile(r"-\w*m|--module")
# Commands that name a program without running it.
_NAMES_ONLY = ("echo", "printf", "pkill", "pgrep", "grep")
_OTHER = re.compile(r"openrlhf\.cli\.\w+")
_ESCAPE = {'"': re.compile(r"\\(?!\r?\n)"), "'": re.compile("''")}
# Launchers start a process for each GPU, but in this program Ray starts the processes.
_LAUNCHERS = ("deepspeed", "torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "mpirun")


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
        if path.suffix == ".py":
            raise ConfigError(f"{path}: is a Python program. Give the command that it starts with --command.")
        if path.suffix in (".yaml", ".yml"):
            return cls._only(list(_entry_points(text, path)), text, str(path))
        return cls._only([(0, len(text), False)], text, str(path))

    @classmethod
    def _only(cls, spans: list[tuple[int, int, bool]], text: str, where: str) -> Self:
        found = [each for start, end, folds in spans for each in _commands(text, start, end, folds, where)]
        if len(found) > 1:
            lines = " and ".join(str(_line(text, program.start)) for program, _ in found)
            raise ConfigError(
                f"{where}: has {len(found)} commands with {HOST_MODULE}, in lines {lines}. Give one of them with "
                "--command."
            )
        if not found:
            named = next((_line(text, text.index(name)) for name in (HOST_MODULE, HOOKED_MODULE) if name in text), None)
            only = "" if named is None else f" Line {named} names it, but not in a command that can be read."
            raise ConfigError(
                f"{where}: no command with `-m {HOST_MODULE}`, OpenRLHF's reinforcement learning, was found; RESTRAIN "
                f"works only inside that.{only} Give the whole command, as you start it, with --command."
            )
        return cls(text, *found[0])


def _entry_points(text: str, path: Path) -> Iterator[tuple[int, int, bool]]:
    """The begin and end of each scalar in a YAML file that names the program, and whether YAML folds its lines."""
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ConfigError(
            f"{path}: is not valid YAML: {error}\nIf it is a template, give the command with --command."
        ) from None
    for scalar in (each for document in documents for each in _scalars(document)):
        if scalar.value.strip() in (HOST_MODULE, HOOKED_MODULE):
            raise ConfigError(
                f"{path}, line {scalar.start_mark.line + 1}: writes the command as a list of words. "
                "Give it in one line with --command."
            )
        if HOST_MODULE in scalar.value or HOOKED_MODULE in scalar.value:
            start, end = scalar.start_mark.index, scalar.end_mark.index
            quoted = 1 if scalar.style in ("'", '"') else 0
            if quoted and _ESCAPE[scalar.style].search(text, start + 1, end - 1):
                raise ConfigError(
                    f"{path}, line {scalar.start_mark.line + 1}: has quotes or escapes inside the quotes of its YAML. "
                    "Give the command with --command."
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


def _commands(
    text: str, start: int, end: int, folds: bool, where: str, known: Variables | None = None
) -> Iterator[tuple[Word, tuple[Word, ...]]]:
    """For each command with the program: the program's word, and the words after it.

    Quoted commands are searched, too. `known` has the variables of the script around a quoted command.
    """
    variables, unread, has_program, after_program = known or Variables(), list[int](), False, False
    for command in commands(text, start, end, folds, variables):
        words = command.words
        if after_program and words and words[0].text.startswith("--"):
            raise ConfigError(f"{_at(where, text, words[0].start)}: begins with a flag. {_join_lines(text, words[0])}")
        name = next((word.text.rpartition("/")[2] for word in words if word.text not in BEFORE_COMMAND), "")
        if name in _NAMES_ONLY:
            continue
        place = next((number for number in range(1, len(words)) if _is_program(text, words, number, where)), None)
        after_program = place is not None or (after_program and not words)
        unread += [] if command.stray is None else [command.stray]
        if place is not None:
            _refuse_launcher(text, words[:place], where)
            _refuse_unread(text, command, variables, where)
            has_program = True
            yield words[place], words[place + 1 :]
            continue
        for word in words:
            found = list(_quoted(text, word, folds, where, variables))
            has_program = has_program or bool(found)
            yield from found
    if unread and not has_program:
        raise _not_read(text, unread[0], where)


def _quoted(
    text: str, word: Word, folds: bool, where: str, variables: Variables
) -> Iterator[tuple[Word, tuple[Word, ...]]]:
    """The commands inside a word, if it is a whole command in quotes, as `bash -c` takes it.

    An assignment runs nothing.
    """
    raw = text[word.start : word.end]
    runs = word.text not in (HOST_MODULE, HOOKED_MODULE) and not re.match(r"[A-Za-z_]\w*\+?=", raw)
    if not runs or not (HOST_MODULE in word.text or HOOKED_MODULE in word.text):
        return
    if raw[0] not in "'\"" or raw[-1] != raw[0]:
        raise _longer_word(text, word, where)
    known = variables if raw[0] == '"' else None
    for program, flags in _commands(text, word.start + 1, word.end - 1, folds, where, known):
        if f"\\{raw[0]}" in text[program.start : word.end - 1]:
            raise _longer_word(text, word, where)
        yield program, flags


def _longer_word(text: str, word: Word, where: str) -> ConfigError:
    return ConfigError(
        f"{_at(where, text, word.start)}: has the program inside a longer word, or inside nested quotes. Give the "
        f"command alone with --command, and the program as `-m {HOST_MODULE}`."
    )


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _at(where: str, text: str, place: int) -> str:
    return f"{where}, line {_line(text, place)}"


def _join_lines(text: str, flag: Word) -> str:
    """How to join a line that begins with a flag to the command above it."""
    above = text[: text.rindex("\n", 0, flag.start)].rpartition("\n")[2]
    if above.lstrip().startswith("#"):
        return "The comment above it ends the command. Move the comment out of the command."
    if above.endswith("\\\\"):
        return "The line above ends with two backslashes, as in a here-document. Give the command with --command."
    if above.rstrip().endswith("\\"):
        return "The line above has a space after its backslash. Remove the space."
    return "End the previous line with a backslash."


def _refuse_unread(text: str, command: ShellCommand, variables: Variables, where: str) -> None:
    if command.stray is not None:
        raise _not_read(text, command.stray, where)
    unreadable = next((word for word in command.words if variables.is_unreadable(word)), None)
    if unreadable is not None:
        raise ConfigError(
            f"{_at(where, text, unreadable.start)}: the flags in {unreadable.text} cannot be read, because its value "
            "has quotes or backslashes inside, or is put together from several parts. Give the command with --command, "
            "and those flags in it."
        )


def _not_read(text: str, place: int, where: str) -> ConfigError:
    return ConfigError(
        f"{_at(where, text, place)}: a quote is opened here and never closed, or a word cannot be parsed: "
        f"{text[place:].splitlines()[0]:.40}. If a shell can read it, give the training command alone with --command."
    )


def _is_program(text: str, words: tuple[Word, ...], number: int, where: str) -> bool:
    word, place = words[number].text, _at(where, text, words[number].start)
    by_path = _PROGRAM.fullmatch(word)
    if by_path and "train_ppo_ray" in by_path.groups():
        raise ConfigError(
            f"{place}: starts {word} by its path. Write `-m {HOST_MODULE}` instead, which starts the same program."
        )
    if not by_path and not _MODULE_FOLLOWS.fullmatch(words[number - 1].text):
        return False
    if by_path or (_OTHER.fullmatch(word) and word != HOST_MODULE):
        raise ConfigError(
            f"{place}: starts {word}, but RESTRAIN works only inside {HOST_MODULE}, OpenRLHF's reinforcement learning."
        )
    return word in (HOST_MODULE, HOOKED_MODULE)


def _refuse_launcher(text: str, before: tuple[Word, ...], where: str) -> None:
    for word in before:
        launcher = word.text.rpartition("/")[2]
        if launcher in _LAUNCHERS:
            raise ConfigError(
                f"{_at(where, text, word.start)}: {launcher} would start {HOST_MODULE} once per GPU, but {HOST_MODULE} "
                f"starts Ray, which uses all GPUs itself. Start it with `python -m {HOST_MODULE}`."
            )
