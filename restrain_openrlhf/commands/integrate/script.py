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
    |(?P<array>(?P<name>[A-Za-z_]\w*)(?P<more>\+?)=(?P<elements>{_BRACKETS}))
    |(?P<end>\n|&&|\|\||\d*[<>]+&?|[;&|()])
    |(?P<word>(?:\${_BRACKETS}|\${{(?:[^{{}}]|{{[^{{}}]*}})*}}|`[^`]*`|\\.|'[^']*'|{_QUOTED}|[^\s'"\\;&|<>()`$]|\$(?!\())+)
    |(?P<stray>.)""",
    re.VERBOSE | re.DOTALL,
)
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<more>\+?)=(?P<value>.*)", re.DOTALL)
# A value in one pair of quotes, without anything inside that the shell would evaluate or remove.
_PLAIN = re.compile(r"""(?P<quote>['"])(?P<inside>(?:\\\r?\n|(?!(?P=quote)|\$\()[^\\`])*)(?P=quote)""")
# Only the running shell can evaluate such a value.
_RUNS = re.compile(r"\$[({]|`")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})")
_WHOLE_VARIABLE = re.compile(r'\$(\w+)|\$\{(\w+)\}|"?\$\{(\w+)\[[@*]\]\}"?')
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
    """The variables that the text has assigned so far: their values, and the words of each when it is used unquoted."""

    values: dict[str, str] = field(default_factory=dict)
    words: dict[str, list[Word]] = field(default_factory=dict)
    # The number of branches and loops around this place, and whether the command depends on the one before it.
    depth: int = 0
    is_chained: bool = False

    def follow(self, raw: str, words: list[Word]) -> None:
        """Note a word that begins or ends a part that may not run, or names a variable that a loop or `read` sets."""
        before = [word.text for word in words if word.text not in _BEFORE_COMMAND]
        if before == ["for"] or before[:1] == ["read"]:
            self.values.pop(raw, None)
            self.words.pop(raw, None)
        elif not before:
            self.depth += (raw in _OPENS) - (raw in _CLOSES)

    def expanded(self, raw: str, start: int) -> list[Word]:
        """The words that the shell makes from a word: several, or none, if it is an unquoted variable or an array.

        A single word has the place of the variable; several words have the places where they were assigned.
        """
        place = start, start + len(raw)
        found = _WHOLE_VARIABLE.fullmatch(raw)
        name = "" if found is None else found[1] or found[2] or found[3]
        if name in self.words:
            words = self.words[name]
            return words if len(words) != 1 else [Word(words[0].text, *place)]
        return [Word(raw if self._splits(name) else self._unquoted(raw), *place)]

    def assign(self, raw: str, start: int) -> None:
        """Remember NAME=value or NAME+=value; ignore any other word."""
        found = _ASSIGNMENT.fullmatch(raw)
        if found is None:
            return
        name, value = found["name"], self._unquoted(found["value"]) if found["value"] else ""
        plain = _PLAIN.fullmatch(found["value"])
        words = None if plain is None else self._words_of(plain, start + found.start("value"))
        words = words if value else []
        if found["more"]:
            before = self.words.get(name)
            is_apart = before is not None and words is not None and value[:1].isspace()
            words = [*(before or ()), *(words or ())] if is_apart else None
            value = self.values.get(name, "") + value
        self._remember(name, value, words)

    def assign_array(self, name: str, words: list[Word], adds: bool) -> None:
        """Remember NAME=(words) or NAME+=(words)."""
        self._remember(name, None, [*self.words.get(name, ()), *words] if adds else words)

    def _remember(self, name: str, value: str | None, words: list[Word] | None) -> None:
        """Where the assignment may not run, only the shell knows the value, or what is added to the words before it."""
        before = self.words.get(name, [])
        self.values.pop(name, None)
        self.words.pop(name, None)
        if self.depth or self.is_chained:
            kept = before if words is not None and words[: len(before)] == before else []
            place = kept[-1].end if kept else 0
            self.words[name] = [*kept, Word(f"${name}", place, place)]
            return
        if value is not None:
            self.values[name] = value
        if words is not None:
            self.words[name] = words

    def _splits(self, name: str) -> bool:
        """Whether the shell splits a variable into words whose places in the text are unknown."""
        value = self.values.get(name, "")
        return name not in self.words and len(value.split()) > 1 and not _RUNS.search(value)

    def _unquoted(self, raw: str) -> str:
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

    def _words_of(self, plain: re.Match[str], start: int) -> list[Word]:
        """The words of a quoted value. The shell does not interpret quotes when it splits a variable."""
        found: list[Word] = []
        for word in re.finditer(r"(?:(?!\\\r?\n)\S)+", plain["inside"]):
            place = start + 1 + word.start()
            if plain["quote"] == "'":
                found.append(Word(word[0], place, place + len(word[0])))
            elif _WHOLE_VARIABLE.fullmatch(word[0]):
                found += self.expanded(word[0], place)
            else:
                found.append(Word(self._put_in(word[0]), place, place + len(word[0])))
        return found


def _commands(text: str, start: int, end: int) -> Iterator[tuple[Word, ...]]:
    """The commands between two places that can be parsed, with variables replaced that were assigned there before."""
    variables, words, is_read = _Variables(), list[Word](), True
    for token in _TOKEN.finditer(text, start, end):
        if token.lastgroup == "word":
            variables.follow(token[0], words)
            words += variables.expanded(token[0], token.start())
            variables.assign(token[0], token.start())
        elif token.lastgroup == "array":
            variables.assign_array(token["name"], _elements(text, token, variables), bool(token["more"]))
            words.append(Word(f"{token['name']}=", token.start(), token.end()))
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


def _elements(text: str, array: re.Match[str], variables: _Variables) -> list[Word]:
    tokens = _TOKEN.finditer(text, array.start("elements") + 1, array.end("elements") - 1)
    raw = ((token[0], token.start()) for token in tokens if token.lastgroup == "word")
    return [word for each in raw for word in variables.expanded(*each)]


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
