"""Finds OpenRLHF's program in a user's shell command or script, and the words after it with their places."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from restrain_openrlhf.errors import ConfigError

HOST_MODULE, HOOKED_MODULE = "openrlhf.cli.train_ppo_ray", "restrain_openrlhf.hook.train_ppo_ray"
# The words between which and a module Python takes nothing else: -m, and -um.
_MODULE_FOLLOWS = re.compile(r"-\w*m")
# Commands that name a program without running it.
_NAMES_ONLY = ("echo", "printf", "grep", "pgrep", "pkill")


def _nested(depth: int) -> tuple[str, str]:
    """Patterns of (…) and of "…", which may contain each other up to `depth` times."""
    brackets, quoted = r"\([^()]*\)", r'"(?:\\.|[^"\\])*"'
    for _ in range(depth):
        brackets = rf"\((?:\\.|(?<=\s)\#[^\n]*|'[^']*'|{quoted}|{brackets}|(?<!\s)\#|[^()'\"\\#])*+\)"
        quoted = rf'"(?:\\.|\${brackets}|\$(?!\()|[^"\\$])*+"'
    return brackets, quoted


_BRACKETS, _QUOTED = _nested(4)
_TOKEN = re.compile(
    rf"""(?P<gap>(?:[ \t\r]|\\\r?\n|`[ \t]*\#[^`]*`)+)
    |(?P<comment>(?<!\S)\#[^\n]*)
    |(?P<document><<-?[ \t]*(?P<quote>['"]?)(?P<mark>\w+)(?P=quote).*?\n[ \t]*(?P=mark)(?=\s|$))
    |(?P<end>\n|&&|\|\||\d*[<>]+&?|[;&|()])
    |(?P<word>[A-Za-z_]\w*\+?={_BRACKETS}|(?:\${_BRACKETS}|\${{(?:[^{{}}]|{{[^{{}}]*}})*}}|`[^`]*`|\\.|'[^']*'|{_QUOTED}|[^\s'"\\;&|<>()`$]|\$(?!\())+)
    |(?P<stray>.)""",
    re.VERBOSE | re.DOTALL,
)
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<more>\+?)=(?P<value>.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})")
_UNQUOTED_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)\}")
# The reserved words before a command, those that begin a part of a script that may not run, and those that end it.
_BEFORE_COMMAND = ("then", "do", "else", "elif", "{", "!", "time")
_OPENS, _CLOSES = ("if", "case", "for", "while", "until", "select"), ("fi", "esac", "done")


@dataclass(frozen=True)
class Word:
    """A word without quotes and with known variables replaced, and its place in the text."""

    text: str
    start: int
    end: int


@dataclass
class _Variables:
    """The values of the variables that the text has assigned so far. Arrays are not among them."""

    values: dict[str, str] = field(default_factory=dict)
    # The number of branches and loops around this place, and whether the command depends on the one before it.
    depth: int = 0
    is_chained: bool = False

    def follow(self, raw: str, words: list[Word]) -> None:
        """Note a word that begins or ends a part that may not run, or names a variable that a loop or `read` sets."""
        before = [word.text for word in words if word.text not in _BEFORE_COMMAND]
        if before == ["for"] or before[:1] == ["read"]:
            self.values.pop(raw, None)
        elif not before:
            self.depth += (raw in _OPENS) - (raw in _CLOSES)

    def expanded(self, raw: str, start: int) -> list[Word]:
        """The word that the shell makes from a word; none from an empty variable.

        A variable that the shell would split into several words stays as it is, like all that only the shell knows.
        """
        found = _UNQUOTED_VARIABLE.fullmatch(raw)
        parts = None if found is None else self.values.get(found[1] or found[2], raw).split()
        text = self._value(raw) if parts is None or len(parts) == 1 else raw
        return [] if parts == [] else [Word(text, start, start + len(raw))]

    def assign(self, raw: str) -> None:
        """Remember NAME=value or NAME+=value, and ignore any other word.

        Where the assignment may not run, only the shell knows the value from then on; so it is with an array.
        """
        if (found := _ASSIGNMENT.fullmatch(raw)) is None:
            return
        before = self.values.pop(found["name"], None) if found["more"] else ""
        self.values.pop(found["name"], None)
        if not (before is None or self.depth or self.is_chained or found["value"].startswith("(")):
            self.values[found["name"]] = before + (self._value(found["value"]) if found["value"] else "")

    def _value(self, raw: str) -> str:
        """A word as the program gets it, except for commands and arithmetic, which are not evaluated."""
        known = raw if raw.startswith("'") else self._put_in(raw)
        if raw[0] == "$" and "(" in raw:
            return raw
        if raw == "~" or raw.startswith("~/"):
            known = f"$HOME{known[1:]}"
        try:
            return " ".join(shlex.split(known.replace("\\\n", "")))
        except ValueError:
            return known

    def _put_in(self, raw: str) -> str:
        return _VARIABLE.sub(lambda found: self.values.get(found[1] or found[2], found[3] or found[0]), raw)


def _commands(text: str, start: int, end: int) -> Iterator[tuple[Word, ...]]:
    """The commands between two places that can be parsed, with variables replaced that were assigned there before."""
    variables, words, is_read = _Variables(), list[Word](), True
    for token in _TOKEN.finditer(text, start, end):
        if token.lastgroup == "word":
            variables.follow(token[0], words)
            words += variables.expanded(token[0], token.start())
            variables.assign(token[0])
        elif token.lastgroup == "end":
            # A line that ends with && or || goes on.
            variables.is_chained = token[0] in ("&&", "||") or (variables.is_chained and not words)
            if is_read:
                yield tuple(words)
            words, is_read = [], True
        elif token.lastgroup == "stray":
            is_read = False
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
