"""Reads the words of a shell text with their places, without quotes and with known variables replaced."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field


def _nested(depth: int) -> tuple[str, str]:
    """Patterns of (…) and of "…", which may contain each other up to `depth` times."""
    brackets, quoted = r"\([^()]*\)", r'"(?:\\.|[^"\\])*"'
    for _ in range(depth):
        brackets = rf"\((?:\\.|(?<=\s)\#[^\n]*|'[^']*'|{quoted}|{brackets}|(?<!\s)\#|[^()'\"\\#])*+\)"
        quoted = rf'"(?:\\.|\${brackets}|\$(?!\()|[^"\\$])*+"'
    return brackets, quoted


_BRACKETS, _QUOTED = _nested(4)
_PROGRAM_NAME = r"openrlhf\.cli\.train_ppo_ray|restrain_openrlhf\.hook\.train_ppo_ray"
_TOKEN = re.compile(
    rf"""(?P<gap>(?:[ \t\r]|\\\r?\n|`[ \t]*\#[^`]*`)+)
    |(?P<comment>(?<!\S)\#[^\n]*)
    |(?P<document><<-?[ \t]*(?P<quote>['"]?)(?P<mark>\w+)(?P=quote)(?:(?!{_PROGRAM_NAME}).)*?\n[ \t]*(?P=mark)(?=\s|$))
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
# The reserved words before a command, those that begin a part of a script that may not run, and those that end it.
BEFORE_COMMAND = ("then", "do", "else", "elif", "{", "!", "time")
_OPENS, _CLOSES = ("if", "case", "for", "while", "until", "select"), ("fi", "esac", "done")
_WHOLE_VARIABLE = re.compile(r'\$(\w+)|\$\{(\w+)\}|"?\$\{(\w+)\[[@*]\]\}"?')


@dataclass(frozen=True)
class Word:
    """A word without quotes and with known variables replaced, and its place in the text."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class ShellCommand:
    """The words of one command, and the place of the first character that cannot be parsed, if there is one."""

    words: tuple[Word, ...]
    stray: int | None


@dataclass
class Variables:
    """The variables that the text has assigned so far: their values, and the words of each when it is used unquoted."""

    values: dict[str, str] = field(default_factory=dict)
    words: dict[str, list[Word]] = field(default_factory=dict)
    # For each part of the script around this place that may not run: what its variables were before it.
    parts: list[dict[str, tuple[str | None, list[Word] | None]]] = field(default_factory=list)

    def enter(self) -> None:
        """Begin a part of the script that may not run, such as a branch."""
        self.parts.append({})

    def leave(self) -> None:
        """End such a part: only the running shell knows the variables that it assigned, or what it added to them."""
        if not self.parts:
            return
        for name, (value, words) in self.parts.pop().items():
            if (self.values.get(name), self.words.get(name)) != (value, words):
                self._doubt(name, value, words)

    def forget(self, name: str) -> None:
        """A variable is assigned by something that cannot be read, such as a loop."""
        self.values.pop(name, None)
        self.words.pop(name, None)

    def is_unreadable(self, word: Word) -> bool:
        """Whether a word is a variable that the shell splits into words whose places in the text are unknown."""
        found = _WHOLE_VARIABLE.fullmatch(word.text)
        return found is not None and self._splits(found[1] or found[2] or "")

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
        return [Word(raw if self._splits(name) else self.unquoted(raw), *place)]

    def assign(self, raw: str, start: int) -> None:
        """Remember NAME=value or NAME+=value; ignore any other word."""
        found = _ASSIGNMENT.fullmatch(raw)
        if found is None:
            return
        name, value = found["name"], self.unquoted(found["value"]) if found["value"] else ""
        self._remember(name)
        plain = _PLAIN.fullmatch(found["value"])
        words = None if plain is None else self._words_of(plain, start + found.start("value"))
        if found["more"]:
            apart = words is not None and value[:1].isspace() and name in self.words
            words = [*self.words[name], *(words or ())] if apart else None
            value = self.values.get(name, "") + value
        self.values[name] = value
        self.words.pop(name, None)
        if words is not None or not value:
            self.words[name] = words or []

    def assign_array(self, name: str, words: list[Word], adds: bool) -> None:
        """Remember NAME=(words) or NAME+=(words)."""
        self._remember(name)
        self.values.pop(name, None)
        self.words[name] = [*self.words.get(name, ()), *words] if adds else words

    def unquoted(self, raw: str) -> str:
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

    def _remember(self, name: str) -> None:
        if self.parts:
            words = self.words.get(name)
            self.parts[-1].setdefault(name, (self.values.get(name), None if words is None else list(words)))

    def _doubt(self, name: str, value: str | None, before: list[Word] | None) -> None:
        after = self.words.get(name, [])
        place = after[-1].end if after else 0
        kept = before if before is not None and after[: len(before)] == before else []
        if self.parts:
            self.parts[-1].setdefault(name, (value, before))
        self.values.pop(name, None)
        self.words[name] = [*kept, Word(f"${name}", place, place)]

    def _splits(self, name: str) -> bool:
        value = self.values.get(name, "")
        return name not in self.words and len(value.split()) > 1 and not _RUNS.search(value)

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


def commands(text: str, start: int, end: int, folds: bool, variables: Variables) -> Iterator[ShellCommand]:
    """The commands between two places, with variables replaced that the text has assigned before.

    With `folds`, the end of a line does not end a command, as in folded YAML.
    """
    words, stray, chained, is_empty = list[Word](), None, False, True
    for token in _TOKEN.finditer(text, start, end):
        if token.lastgroup == "stray":
            stray = token.start() if stray is None else stray
        elif token.lastgroup == "word":
            if not folds:
                _follow(token[0], words, variables)
            words += variables.expanded(token[0], token.start())
            variables.assign(token[0], token.start())
        elif token.lastgroup == "array":
            inside = token.start("elements") + 1, token.end("elements") - 1
            each = commands(text, *inside, folds=True, variables=variables)
            variables.assign_array(token["name"], [word for part in each for word in part.words], bool(token["more"]))
        elif token.lastgroup == "end" and not (folds and token[0] == "\n"):
            if not (chained and is_empty):
                chained = _follow_chain(token[0], chained, variables)
            yield ShellCommand(tuple(words), stray)
            words, stray, is_empty = [], None, True
            continue
        is_empty = is_empty and token.lastgroup not in ("word", "array")
    yield ShellCommand(tuple(words), stray)
    if chained:
        variables.leave()


def _follow(raw: str, words: list[Word], variables: Variables) -> None:
    """Note whether a word begins or ends a part that may not run, or names a variable that a loop or `read` sets."""
    before = [word.text for word in words if word.text not in BEFORE_COMMAND]
    if before == ["for"] or before[:1] == ["read"]:
        variables.forget(raw)
    elif before:
        return
    elif raw in _OPENS:
        variables.enter()
    elif raw in _CLOSES:
        variables.leave()
    elif raw in ("else", "elif"):
        variables.leave()
        variables.enter()


def _follow_chain(end: str, chained: bool, variables: Variables) -> bool:
    """Whether the next command only runs if the one before succeeded, or failed; the whole chain is such a part."""
    joins = end in ("&&", "||")
    if joins and not chained:
        variables.enter()
    elif chained and end in ("\n", ";", "&", ")"):
        variables.leave()
        return False
    return joins or chained
