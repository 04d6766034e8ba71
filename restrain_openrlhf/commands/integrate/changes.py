"""Reviews the flags of a user's command by the gate of runs, and changes the command's text."""

import difflib
import re
import shlex
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

import yaml

from restrain_openrlhf.commands.integrate.shell import Word
from restrain_openrlhf.commands.integrate.written import HOOKED_MODULE, Written
from restrain_openrlhf.config.checks import CHECKS, Refusal, refusals
from restrain_openrlhf.config.host_flags import agent_path, host_parser, is_agent, parse
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.errors import ConfigError, did_you_mean
from restrain_openrlhf.method import build

CONFIG_FLAG = "restrain.config"
AGENT_PATH = "$(restrain agent-path)"
# Words that only the running shell can evaluate.
_UNKNOWN = re.compile(r"\$|`")
_OLD_NAMES = Path(__file__).with_name("old_names.yaml")


class _Read(dict[str, Any]):
    """The values of flags, and the names of those that a check read.

    A copy, `{**flags}`, with which checks fill in their messages, is not counted.
    """

    def __init__(self, flags: Mapping[str, Any]) -> None:
        super().__init__(flags)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)


@dataclass(frozen=True)
class Given:
    """One flag of the command, its values, and the words of the text that hold them, the flag's name first.

    The name is today's. `written` is the name in the text, which may be that of an older OpenRLHF.
    """

    name: str
    values: tuple[str, ...]
    places: tuple[Word, ...]
    written: str

    @property
    def words(self) -> list[str]:
        """The words for argparse."""
        return [f"--{self.name}", *(str(agent_path()) if value == AGENT_PATH else value for value in self.values)]


@dataclass(frozen=True)
class RefusedFlag:
    """Why a flag would be refused, and the change that is needed (None: the user has to decide)."""

    reason: str
    change: str | None


@dataclass(frozen=True)
class CommandReview:
    """The review of a command: refused flags, and the values of all flags.

    `unchecked` has the words whose values only the shell knows, and `unknown` those of them that are values of flags.
    """

    refused: tuple[RefusedFlag, ...]
    unchecked: tuple[str, ...]
    unknown: Mapping[str, str]
    flags: Mapping[str, Any]
    change: Mapping[str, Any]
    given: tuple[Given, ...]
    config: str | None

    @property
    def renamed(self) -> list[Given]:
        """The flags that have another name in the text, and a name in today's OpenRLHF."""
        return [flag for flag in self.given if flag.written != flag.name]

    @classmethod
    def of(cls, written: Written, config: HookConfig) -> Self:
        """Review a command by the gate of runs.

        Never raises an error: a flag that cannot be read is listed as refused.
        """
        given, refused, stray = _flags(written.flags)
        unchecked = [*stray]
        taken, unknown = list[Given](), dict[str, str]()
        for flag in (each for each in given if each.name != CONFIG_FLAG):
            problem = _problem(flag)
            if problem is not None:
                refused.append(RefusedFlag(problem, None))
                continue
            if not (is_unknown := any(_UNKNOWN.search(word) for word in flag.words)) or _is_text(flag.name):
                taken.append(flag)
                unknown.pop(flag.name, None)
            if is_unknown:
                unchecked.append(" ".join(flag.words))
                unknown[flag.name] = " ".join(flag.values)
        flags = vars(parse([word for flag in taken for word in flag.words]))
        is_certain = _Certainty(unknown, {flag.name for flag in given}, bool(stray), flags, config)
        found = list(filter(is_certain, refusals(CHECKS, config, flags, build(config.method))))
        change = {name: value for each in found for name, value in each.change.items()}
        refused += [RefusedFlag(each.reason, _in_words(each.change)) for each in found]
        values = {**flags, **change}
        return cls(tuple(refused), tuple(unchecked), unknown, values, change, tuple(given), config_named(written))

    def changed(self, written: Written, config_path: str) -> str:
        """The command's text with our program, our flag, and all changes."""
        added = [f"--{CONFIG_FLAG} {config_path}"] if self.config is None else []
        edits: list[tuple[int, int, str]] = []
        for name, value in self.change.items():
            own = [flag for flag in self.given if flag.name == name]
            words = _words(name, value)
            kept = own[0].places[0] if own and words else None
            edits += [
                (_before(written, each), each.end, "") for flag in own for each in flag.places if each is not kept
            ]
            if kept is not None:
                edits.append((kept.start, kept.end, words))
            elif words:
                added.append(words)
        for flag in (each for each in self.renamed if each.name not in self.change):
            place, equals = flag.places[0], len(flag.written) + len("--")
            edits.append((place.start, place.start + equals, f"--{flag.name}"))
        program, gap = written.program, _gap(written)
        edits.append((program.start, program.end, "".join([HOOKED_MODULE, *(f"{gap}{words}" for words in added)])))
        text = written.text
        for start, end, new in sorted(set(edits), reverse=True):
            text = text[:start] + new + text[end:]
        return text


@dataclass(frozen=True)
class _Certainty:
    """Decides whether a refusal holds for every value that the shell may put into the command."""

    unknown: Mapping[str, str]
    given: Set[str]
    more_flags: bool
    flags: Mapping[str, Any]
    config: HookConfig

    def __call__(self, refusal: Refusal) -> bool:
        """Whether the check has read no unknown value, and, if it asks for a flag, no unknown word may be that flag."""
        flags = _Read(self.flags)
        refusal.check(flags, self.config, build(self.config.method))
        doubtful = {name for name in self.unknown if not _is_text(name)}
        is_missing = not refusal.change and not flags.names & self.given
        return not flags.names & doubtful and not (is_missing and self.more_flags)


def config_named(written: Written) -> str | None:
    """The file that --restrain.config names; None if it is not given."""
    return _last_value(written, CONFIG_FLAG)


def diff(before: str, after: str) -> str:
    """A unified diff; empty if nothing changes."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "yours", "with RESTRAIN", lineterm="")
    return "\n".join(lines)


def own_agent(written: Written) -> str | None:
    """The path of the user's own agent in the command; None if there is none, or only the shell knows it."""
    path = _last_value(written, "train.agent_func_path") or AGENT_PATH
    return None if _UNKNOWN.search(path) or is_agent(path) else path


def _last_value(written: Written, name: str) -> str | None:
    """The value of a flag; the last one counts if it is given several times."""
    given = [flag for flag in _flags(written.flags)[0] if flag.name == name and flag.values]
    return given[-1].values[0] if given else None


def _flags(words: Sequence[Word]) -> tuple[list[Given], list[RefusedFlag], list[str]]:
    """The flags with their values, refusals of words that belong to no flag, and words that only the shell knows."""
    found, stray, unknown = list[Given](), list[RefusedFlag](), list[str]()
    for word in words:
        if re.match(r"--\w", word.text):
            name, equals, value = word.text[2:].partition("=")
            found.append(Given(_whole_name(name), (value,) if equals else (), (word,), name))
        elif found and _takes_more(found[-1]):
            last = found.pop()
            found.append(replace(last, values=(*last.values, word.text), places=(*last.places, word)))
        elif _UNKNOWN.search(word.text):
            unknown.append(word.text)
        else:
            stray.append(
                RefusedFlag(f"{word.text!r} belongs to no flag: OpenRLHF's command line would stop at it.", None)
            )
    return found, stray, unknown


@cache
def _old_names() -> dict[str, dict[str, str]]:
    names: dict[str, dict[str, str]] = yaml.safe_load(_OLD_NAMES.read_text(encoding="utf-8"))
    return names


def _whole_name(name: str) -> str:
    """The full name of a flag. argparse also takes the beginning of a name, if no other name begins like that."""
    if name in _old_names()["renamed"]:
        return _old_names()["renamed"][name]
    known = [option[2:] for option in host_parser()._option_string_actions if option.startswith(f"--{name}")]
    return known[0] if len(known) == 1 and name not in known else name


def _is_text(name: str) -> bool:
    """Whether a flag takes any text, so that a value that only the shell knows can be checked as the text it is."""
    action = host_parser()._option_string_actions[f"--{name}"]
    takes_one = action.nargs is None and action.type is str and action.choices is None
    # What the file holds decides whether it is this project's agent.
    return takes_one and name != "train.agent_func_path"


def _takes_more(flag: Given) -> bool:
    action = host_parser()._option_string_actions.get(f"--{flag.name}")
    if action is None:
        return not flag.values
    return action.nargs in ("+", "*") or len(flag.values) < (1 if action.nargs is None else int(action.nargs))


def _problem(flag: Given) -> str | None:
    """Why OpenRLHF's parser would refuse a flag; None if it would not, or only the shell knows the value."""
    known = [option[2:] for option in host_parser()._option_string_actions if option.startswith("--")]
    if flag.name not in known:
        instead = f" {gone}" if (gone := _old_names()["gone"].get(flag.name)) else did_you_mean(flag.name, known)
        return f"--{flag.name} is not a flag of OpenRLHF's train_ppo_ray.{instead}"
    try:
        parse([] if any(_UNKNOWN.search(word) for word in flag.words) else flag.words)
    except ConfigError as error:
        return str(error)
    return None


def _in_words(change: Mapping[str, Any]) -> str | None:
    return "; ".join(_words(name, value) or f"remove --{name}" for name, value in change.items()) or None


def _words(name: str, value: Any) -> str:
    """The words of a flag in a command; empty if the flag should be left out."""
    if value is None or value is False or value == host_parser().get_default(name):
        return ""
    return f"--{name}" if value is True else f"--{name} {shlex.quote(str(value))}"


def _gap(written: Written) -> str:
    """The text between the program and its first flag, if it breaks the line, so that new flags get lines, too."""
    after = written.flags[0].start if written.flags else written.program.end
    gap = written.text[written.program.end : after]
    return gap if "\n" in gap else " "


def _before(written: Written, taken: Word) -> int:
    """The end of the word before `taken` if only a gap is between them, because a word is removed with its gap."""
    ends = (word.end for word in (written.program, *written.flags) if word.end <= taken.start)
    return max((end for end in ends if not written.text[end : taken.start].strip(" \t\r\n\\")), default=taken.start)
