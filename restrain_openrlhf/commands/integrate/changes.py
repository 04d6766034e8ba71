"""Reviews the flags of a user's command by the gate of runs, and changes the command's text."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence, Set
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
    """One flag of the command, its values, and the words of the text that hold them, the flag's name first."""

    name: str
    values: tuple[str, ...]
    places: tuple[Word, ...]

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
    """The review of a command: refused flags, and the values of all flags.

    `unchecked` has the words whose values only the shell knows, and `unknown` those of them that are values of flags.
    """

    refused: tuple[RefusedFlag, ...]
    unchecked: tuple[str, ...]
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
        hosts = [flag for flag in given if flag.name != CONFIG_FLAG]
        problems = {flag: problem for flag in hosts if (problem := _problem(flag))}
        read = [flag for flag in hosts if flag not in problems]
        last = {flag.name: flag for flag in read}
        unknown = {name: " ".join(flag.values) for name, flag in last.items() if flag.is_unknown}
        checked = (flag for flag in read if not flag.is_unknown or _is_text(flag.name))
        flags = vars(parse([word for flag in checked for word in flag.words]))
        doubtful = {name for name in unknown if not _is_text(name)}
        stray_known = [word for word in stray if not _UNKNOWN.search(word)]
        more_flags = len(stray_known) < len(stray)
        found = [
            each
            for each in refusals(CHECKS, config, flags, build(config.method))
            if _is_certain(each, flags, config, doubtful, {flag.name for flag in given}, more_flags)
        ]
        change = {name: value for each in found for name, value in each.change.items()}
        # The shell might turn an unknown word into a flag.
        alone = (f"{word!r} belongs to no flag: OpenRLHF's command line would stop at it." for word in stray_known)
        refused = [RefusedFlag(problem, None) for problem in (*alone, *problems.values())]
        refused += [RefusedFlag(each.reason, _in_words(each.change)) for each in found]
        unchecked = [*filter(_UNKNOWN.search, stray), *(" ".join(flag.words) for flag in read if flag.is_unknown)]
        values = {**flags, **change}
        return cls(tuple(refused), tuple(dict.fromkeys(unchecked)), unknown, values, change, tuple(given))

    def changed(self, written: Written, config_path: str) -> str:
        """The command's text with our program, our flag, and all changes."""
        added = [f"--{CONFIG_FLAG} {config_path}"] if last_value(written, CONFIG_FLAG) is None else []
        edits: set[tuple[int, int, str]] = set()
        for name, value in self.change.items():
            own = [flag for flag in self.given if flag.name == name]
            words = _words(name, value)
            edits |= set(_replaced(written, own, words))
            added += [words] if words and not own else []
        program, gap = written.program, _gap(written)
        edits.add((program.start, program.end, "".join([HOOKED_MODULE, *(f"{gap}{words}" for words in added)])))
        text = written.text
        for start, end, new in sorted(edits, reverse=True):
            text = text[:start] + new + text[end:]
        return text


def _is_certain(
    refusal: Refusal,
    flags: Mapping[str, Any],
    config: HookConfig,
    doubtful: Set[str],
    given: Set[str],
    more_flags: bool,
) -> bool:
    """Whether a refusal holds for every value that the shell may put into the command.

    The check has then read no doubtful value and, if it asks for a flag, no unknown word may be that flag.
    """
    read = _Read(flags)
    refusal.check(read, config, build(config.method))
    is_missing = not refusal.change and not read.names & given
    return not read.names & doubtful and not (is_missing and more_flags)


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
            found.append(Given(_whole_name(name), (value,) if equals else (), (word,)))
        elif found and _takes_more(found[-1]):
            last = found.pop()
            found.append(replace(last, values=(*last.values, word.text), places=(*last.places, word)))
        else:
            stray.append(word.text)
    return found, stray


def _whole_name(name: str) -> str:
    """The full name of a flag. argparse also takes the beginning of a name, if no other name begins like that."""
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


def _replaced(written: Written, flags: Sequence[Given], words: str) -> Iterator[tuple[int, int, str]]:
    """Edits (start, end, new text) that put `words` in the first flag's place, and remove all else of these flags."""
    kept = flags[0].places[0] if flags and words else None
    for place in (each for flag in flags for each in flag.places):
        yield (place.start, place.end, words) if place is kept else (_before(written, place), place.end, "")


def _gap(written: Written) -> str:
    """The text between the program and its first flag, if it breaks the line, so that new flags get lines, too."""
    after = written.flags[0].start if written.flags else written.program.end
    gap = written.text[written.program.end : after]
    return gap if "\n" in gap else " "


def _before(written: Written, taken: Word) -> int:
    """The end of the word before `taken` if only a gap is between them, because a word is removed with its gap."""
    ends = (word.end for word in (written.program, *written.flags) if word.end <= taken.start)
    return max((end for end in ends if not written.text[end : taken.start].strip(" \t\r\n\\")), default=taken.start)
