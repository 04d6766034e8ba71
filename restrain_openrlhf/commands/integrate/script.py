"""Finds OpenRLHF's program in a user's shell command or script, and the words after it with their places."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from restrain_openrlhf.errors import ConfigError

HOST_MODULE, HOOKED_MODULE = "openrlhf.cli.train_ppo_ray", "restrain_openrlhf.hook.train_ppo_ray"
# The words between which and a module Python takes nothing else: -m, and -um.
_MODULE_FOLLOWS = re.compile(r"-\w*m")
# Commands that name a program without running it.
_NAMES_ONLY = ("echo", "printf", "grep", "pgrep", "pkill")
_TOKEN = re.compile(
    r"""(?P<gap>(?:[ \t\r]|\\\r?\n)+)
    |(?P<comment>(?<!\S)\#[^\n]*)
    |(?P<document><<-?[ \t]*(?P<quote>['"]?)(?P<mark>\w+)(?P=quote).*?\n[ \t]*(?P=mark)(?=\s|$))
    |(?P<end>\n|&&|\|\||\d*[<>]+&?|[;&|()])
    |(?P<word>(?:\$\([^()]*\)|\${[^{}]*}|`[^`]*`|\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s'"\\;&|<>()`])+)
    |(?P<stray>.)""",
    re.VERBOSE | re.DOTALL,
)
# A line that gives a variable a plain value, and a variable in a word.
_ASSIGNMENT = re.compile(
    r"""^(?:export[ \t]+)?(\w+)=("[^"$`\\\n]+"|'[^'\n]+'|[^\s"'$`\\;&|<>()]+)[ \t]*(?:\#.*)?$""", re.M
)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


@dataclass(frozen=True)
class Word:
    """A word without quotes and with known variables replaced, and its place in the text."""

    text: str
    start: int
    end: int


def _assigned(text: str) -> dict[str, str]:
    """The plain values of the variables that a script sets once, in a line of their own and under no condition."""
    found = _ASSIGNMENT.findall(text)
    set_again = r"\b{}(?:\+?=| in\b)|\bread\b.*\b{}\b"
    once = {name for name, _ in found if len(re.findall(set_again.replace("{}", name), text)) == 1}
    return {name: value.strip("\"'") for name, value in found if name in once}


def _unquoted(raw: str, values: Mapping[str, str]) -> str:
    """A word as the program gets it, except for commands and unknown variables, which are not evaluated."""
    if "$(" in raw or "`" in raw:
        return raw

    def known(found: re.Match[str]) -> str:
        value = values.get(found[1] or found[2], "")
        # Outside of quotes, the shell makes several words of a value with blanks.
        return value if raw.startswith('"') or not re.search(r"\s", value) else ""

    filled = raw if raw.startswith("'") else _VARIABLE.sub(lambda found: known(found) or found[0], raw)
    try:
        return " ".join(shlex.split(f"$HOME{filled[1:]}" if filled.startswith("~/") else filled))
    except ValueError:
        return filled


def _commands(text: str, start: int, end: int) -> Iterator[tuple[Word, ...]]:
    """The commands between two places that can be parsed; those with a quote that does not end are left out."""
    values, words, is_read = _assigned(text), list[Word](), True
    for token in _TOKEN.finditer(text, start, end):
        if token.lastgroup == "word":
            words.append(Word(_unquoted(token[0], values), token.start(), token.end()))
        elif token.lastgroup == "stray":
            is_read = False
        elif token.lastgroup == "end":
            if is_read:
                yield tuple(words)
            words, is_read = [], True
    if is_read:
        yield tuple(words)


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
        found = cls._only(command, "--command")
        if "\n" in command.strip():
            return found
        for word in reversed(found.flags):
            if word.text.startswith("--") and word.start > found.program.start:
                command = f"{command[: word.start].rstrip()} \\\n    {command[word.start :]}"
        return cls._only(f"{command.strip()}\n", "--command")

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """From a shell or Slurm script. Raises ConfigError."""
        try:
            text = path.read_text(encoding="utf-8")
        except (FileNotFoundError, UnicodeDecodeError):
            raise ConfigError(f"{path}: no such text file. Give a script.") from None
        if path.suffix in (".yaml", ".yml"):
            raise ConfigError(f"{path}: is no script. Give the entry point of the RayJob with --command.")
        return cls._only(text, str(path))

    @classmethod
    def _only(cls, text: str, where: str) -> Self:
        found = list(_programs(text, where, 0, len(text)))
        if len(found) == 1:
            return cls(text, *found[0])
        if found:
            lines = " and ".join(str(_line(text, program.start)) for program, _ in found)
            raise ConfigError(
                f"{where}: has {len(found)} commands with {HOST_MODULE}, in lines {lines}. Give one of them with "
                "--command."
            )
        named = next((_line(text, text.index(name)) for name in (HOST_MODULE, HOOKED_MODULE) if name in text), None)
        only = "" if named is None else f" Line {named} names it, but not in a command that can be read."
        raise ConfigError(
            f"{where}: no command with `-m {HOST_MODULE}`, OpenRLHF's reinforcement learning, was found; RESTRAIN "
            f"works only inside that.{only} Give the whole command, as you start it, with --command."
        )


def _programs(text: str, where: str, start: int, end: int) -> Iterator[tuple[Word, tuple[Word, ...]]]:
    """The program's word and the words after it, for each command between two places that has the program after -m."""
    is_after = False
    for words in _commands(text, start, end):
        if words and words[0].text in _NAMES_ONLY:
            continue
        if is_after and words and words[0].text.startswith("--"):
            raise ConfigError(
                f"{where}, line {_line(text, words[0].start)}: begins with a flag. End the line above with a backslash "
                "and nothing after it; a comment between the lines ends the command, too."
            )
        modules = (number for number in range(1, len(words)) if _MODULE_FOLLOWS.fullmatch(words[number - 1].text))
        place = next((number for number in modules if words[number].text in (HOST_MODULE, HOOKED_MODULE)), None)
        is_after = place is not None or (is_after and not words)
        if place is not None:
            yield words[place], words[place + 1 :]
        else:
            yield from _quoted_programs(text, where, words)


def _quoted_programs(text: str, where: str, words: tuple[Word, ...]) -> Iterator[tuple[Word, tuple[Word, ...]]]:
    """Those inside words that are a whole command in one pair of quotes, as `bash -c` takes it.

    A command whose flags have escaped quotes is not among them.
    """
    for word in words:
        quote, last = text[word.start : word.start + 1], text[word.end - 1 : word.end]
        if quote == last and quote in ("'", '"') and (HOST_MODULE in word.text or HOOKED_MODULE in word.text):
            for program, flags in _programs(text, where, word.start + 1, word.end - 1):
                if f"\\{quote}" not in text[program.start : word.end - 1]:
                    yield program, flags


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1
