"""OpenRLHF's command line: its recorded flags, the bounds of its numbers, a run's defaults, and the agent's file."""

import argparse
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel

from restrain_openrlhf.config.documents import CHAT_TEMPLATE, shipped_yaml
from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.errors import ConfigError, did_you_mean
from restrain_openrlhf.machine.host_releases import NEWEST, RELEASES, Release, installed

ENTRY_POINT = "openrlhf.cli.train_ppo_ray"
# Written by tools/record_flags.py from the newest OpenRLHF, and compared with it by a test. The table of releases has
# the differences of older ones.
RECORD = Path(__file__).with_name(f"openrlhf-{NEWEST.version}.yaml")
# The ends of a bound's range in words. A number without words before it is that of `1 or more`.
ENDS = {"more than": gt, "at most": le, "less than": lt, "": ge}
_BOUNDS_FILE = Path(__file__).with_name("host_bounds.yaml")
_DEFAULTS_FILE = Path(__file__).with_name("run_defaults.yaml")
TYPES = {"int": int, "float": float, "str": str}

# The values of OpenRLHF's flags by their dotted names.
Flags = Mapping[str, Any]


@cache
def _newest_record() -> dict[str, dict[str, Any]]:
    flags: dict[str, dict[str, Any]] = shipped_yaml(RECORD)
    return flags


def record(release: Release) -> dict[str, Mapping[str, Any]]:
    """The release's flags, with the keyword arguments of argparse's `add_argument`."""
    every = {**_newest_record(), **release.flags}
    return {name: keywords for name, keywords in every.items() if keywords is not None}


class Bound(BaseModel, frozen=True, extra="forbid"):
    """The values that the numbers of these flags may have, besides NaN and infinities, and why (host_bounds.yaml)."""

    flags: tuple[str, ...]
    why: str
    range: str = "a finite number"
    also: float | None = None
    needed: bool = False
    only_with: str | None = None

    def allows(self, name: str, flags: Flags) -> bool:
        """Whether a flag's number, or each of its numbers, is within the bound."""
        if flags[name] is None or (self.only_with and not flags[self.only_with]):
            return not self.needed
        numbers = flags[name] if isinstance(flags[name], list) else [flags[name]]
        return all(each == self.also or is_within(self.range, each) for each in numbers)


def is_within(words: str, number: float) -> bool:
    """Whether a finite number is within a range, such as `more than 0 and at most 1`."""
    ends = re.findall(r"(more than|at most|less than)? ?(\d[\d.]*)", words)
    return math.isfinite(number) and all(ENDS[end](number, float(value)) for end, value in ends)


BOUNDS = tuple(map(Bound.model_validate, shipped_yaml(_BOUNDS_FILE)))


class HostParser(argparse.ArgumentParser):
    """argparse's parser, but a wrong flag raises ConfigError instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"OpenRLHF's command line refuses the flags: {message}.")


@cache
def host_parser() -> argparse.ArgumentParser:
    """A parser equal to that of the installed OpenRLHF, or to the newest one's where none is installed.

    Two things differ: the default of `logger.wandb.run_name`, which is a time in OpenRLHF; and flags that only other
    releases have, which are None here.
    """
    parser = HostParser()
    every = {*_newest_record(), *(name for release in RELEASES.values() for name in release.flags)}
    parser.set_defaults(**dict.fromkeys(every - record(installed()).keys()))
    for name, keywords in record(installed()).items():
        kind = {"type": TYPES[keywords["type"]]} if "type" in keywords else {}
        parser.add_argument(f"--{name}", **{**keywords, **kind})
    return parser


def to_arguments(flags: Mapping[str, object]) -> list[str]:
    """The command-line words for flags (dotted names).

    True switches a flag on, False and None leave it out, and a list gives several values. Raises ConfigError for a flag
    that OpenRLHF does not have, naming the nearest one, and for true or false where a value is needed.
    """
    known = {option.removeprefix("--"): action for option, action in host_parser()._option_string_actions.items()}
    arguments: list[str] = []
    for name, value in flags.items():
        if name not in known:
            hint = did_you_mean(name, known, block="openrlhf.") or f" See `python -m {ENTRY_POINT} --help`."
            raise ConfigError(f"openrlhf: {name!r} is not a flag of OpenRLHF's train_ppo_ray.{hint}")
        arguments += _words(name, value, takes_value=known[name].nargs != 0)
    return arguments


def _words(name: str, value: object, takes_value: bool) -> list[str]:
    if isinstance(value, bool) and takes_value:
        raise ConfigError(f"openrlhf: {name} needs a value, or null for its default; true and false are for switches.")
    if value is None or value is False:
        return []
    if value is True:
        return [f"--{name}"]
    if not takes_value:
        raise ConfigError(f"openrlhf: {name} is a switch: give true or false, not {value!r}.")
    if isinstance(value, list | tuple):
        return [f"--{name}", *(str(part) for part in value)]
    # argparse takes a word such as -1e-6 for a flag.
    return [f"--{name}={value}"] if str(value).startswith("-") else [f"--{name}", str(value)]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The host's flat namespace (dotted names) for command-line words. Raises ConfigError if the host would exit."""
    return host_parser().parse_args(list(arguments))


def flags_of(config: RunConfig, also: Flags | None = None) -> dict[str, Any]:
    """The values of all flags of OpenRLHF in a run of this configuration; `also` has defaults for some of them."""
    stated = {**(also or {}), **host_flags(config)}
    # OpenRLHF's switch cannot tell no from nothing said, which is None here.
    return {**vars(parse(to_arguments(stated))), CHAT_TEMPLATE: stated.get(CHAT_TEMPLATE)}


@cache
def _defaults() -> dict[str, Any]:
    flags: dict[str, Any] = shipped_yaml(_DEFAULTS_FILE)
    return flags


def host_flags(config: RunConfig) -> dict[str, Any]:
    """The flags that a run sets: those of run_defaults.yaml, overridden by those of the configuration."""
    run_dir = config.run_dir

    def filled(value: Any) -> Any:
        return value.format(run_dir=run_dir, name=run_dir.name) if isinstance(value, str) else value

    return {**{name: filled(value) for name, value in _defaults().items()}, **config.openrlhf}


def agent_path() -> Path:
    """The file of our agent, for --train.agent_func_path."""
    return Path(__file__).parents[1] / "hook" / "agent.py"


def is_agent(path: str) -> bool:
    """Whether a path is our agent's file, or an equal file in another place, which another node may have."""
    given, own = Path(path), agent_path()
    return given == own or (given.is_file() and given.read_bytes() == own.read_bytes())
