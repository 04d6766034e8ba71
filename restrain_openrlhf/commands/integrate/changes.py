"""Reviews the flags of a user's command by the gate of runs, and changes the command's text."""

import re
import shlex
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Self

from restrain_openrlhf.commands.integrate.script import HOOKED_MODULE, Word, Written
from restrain_openrlhf.config.checks import CHECKS, Refusal, refusals
from restrain_openrlhf.config.host_flags import agent_path, host_parser, is_agent, parse
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.errors import ConfigError, did_you_mean
from restrain_openrlhf.method import build

CONFIG_FLAG = "restrain.config"
AGENT_PATH = "$(restrain agent-path)"
# Words that only the running shell can evaluate.
_UNKNOWN = re.compile(r"\$|`")


@dataclass(frozen=True)
class Given:
    """One flag of the command, its values, and the place of both in the text."""

    name: str
    values: tuple[str, ...]
    start: int
    end: int

    @property
    def words(self) -> list[str]:
        return [f"--{self.name}", *(str(agent_path()) if value == AGENT_PATH else value for value in self.values)]

    @property
    def is_unknown(self) -> bool:
        """Whether only the running shell knows a value."""
        return any(_UNKNOWN.search(word) for word in self.words)


@dataclass(frozen=True)
class RefusedFlag:
    """Why a flag would be refused, and the change that is needed (None: the user has to decide)."""

    reason: str
    change: str | None


@dataclass(frozen=True)
class CommandReview:
    """The review of a command: refused flags, and the values of all flags; `unknown` has those only the shell knows."""

    refused: tuple[RefusedFlag, ...]
    unknown: Mapping[str, str]
    flags: Mapping[str, Any]
    change: Mapping[str, Any]
    given: tuple[Given, ...]

    @classmethod
    def of(cls, written: Written, config: HookConfig) -> Self:
        """Review a command by the gate of runs.

        Never raises an error: a flag that cannot be read is listed as refused.
        """
        given, stray = _flags(written.flags)
        hosts = {flag: _problem(flag) for flag in given if flag.name != CONFIG_FLAG}
        last = {flag.name: flag for flag, problem in hosts.items() if problem is None}
        unknown = {name: flag for name, flag in last.items() if flag.is_unknown}
        checked = (flag for name, flag in last.items() if name not in unknown or _is_text(name))
        flags = vars(parse([word for flag in checked for word in flag.words]))
        # A variable that holds flags may set any flag that is not written out.
        hidden = flags.keys() - last.keys() if any(map(_UNKNOWN.search, stray)) else set()
        doubtful = {name for name in unknown if not _is_text(name)} | hidden
        found = refusals(CHECKS, config, flags, build(config.method))
        found = [each for each in found if not _names_read(each, flags, config) & doubtful]
        change = {name: value for each in found for name, value in each.change.items()}
        alone = (f"{word!r} belongs to no flag. Write flags that are in a variable into the command." for word in stray)
        refused = [RefusedFlag(problem, None) for problem in (*alone, *filter(None, hosts.values()))]
        refused += [RefusedFlag(each.reason, _in_words(each.change)) for each in found]
        values = {name: " ".join(flag.values) for name, flag in unknown.items()}
        return cls(tuple(refused), values, {**flags, **change}, change, tuple(given))

    def changed(self, written: Written, config_path: str) -> str:
        """The command's text with our program, our flag, and all changes."""
        added = [f"--{CONFIG_FLAG} {config_path}"] if last_value(written, CONFIG_FLAG) is None else []
        edits = list[tuple[int, int, str]]()
        for name, value in self.change.items():
            words, own = _words(name, value), [flag for flag in self.given if flag.name == name]
            edits += [(flag.start, flag.end, words if flag is own[0] else "") for flag in own]
            added += [words] if words and not own else []
        # New flags get lines of their own where the first one has.
        gap = written.text[written.program.end : written.flags[0].start] if written.flags else ""
        gap, program = gap if "\n" in gap else " ", written.program
        edits.append((program.start, program.end, gap.join([HOOKED_MODULE, *added])))
        text = written.text
        for start, end, new in sorted(edits, reverse=True):
            # What is removed goes with the gap before it.
            text = (text[:start] + new if new else text[:start].rstrip(" \t\r\n\\")) + text[end:]
        return text


def _names_read(refusal: Refusal, flags: Mapping[str, Any], config: HookConfig) -> Set[str]:
    """The flags on which a refusal depends."""
    read = _Read(flags)
    refusal.check(read, config, build(config.method))
    return read.names


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


def own_agent(written: Written) -> str | None:
    """The path of the user's own agent in the command; None if there is none, or only the shell knows it."""
    path = last_value(written, "train.agent_func_path") or AGENT_PATH
    return None if _UNKNOWN.search(path) or is_agent(path) else path


def last_value(written: Written, name: str) -> str | None:
    """The value of a flag; the last one counts if it is given several times."""
    given = [flag for flag in _flags(written.flags)[0] if flag.name == name and flag.values]
    return given[-1].values[0] if given else None


def _flags(words: Sequence[Word]) -> tuple[list[Given], list[str]]:
    """The flags with their values, and words that belong to no flag."""
    found, stray = list[Given](), list[str]()
    for word in words:
        if re.match(r"--\w", word.text):
            name, equals, value = word.text[2:].partition("=")
            found.append(Given(name, (value,) if equals else (), word.start, word.end))
        elif found and _takes_more(found[-1]):
            last = found.pop()
            found.append(replace(last, values=(*last.values, word.text), end=word.end))
        else:
            stray.append(word.text)
    return found, stray


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
        return f"--{flag.name} is not a flag of OpenRLHF's train_ppo_ray.{did_you_mean(flag.name, known)}"
    try:
        parse([] if flag.is_unknown else flag.words)
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
