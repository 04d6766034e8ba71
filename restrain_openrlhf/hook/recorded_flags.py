"""OpenRLHF's flags on record, for the commands that start nothing and must work where it is not installed.

`python -m restrain_openrlhf.hook.recorded_flags` writes the record anew from the installed OpenRLHF; a test holds them
together. Whatever trains asks OpenRLHF's own parser (host_flags.py).
"""

import argparse
import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter

from restrain_openrlhf.hook import contract
from restrain_openrlhf.hook.host_flags import HostParser, host_parser

VERSION = contract.SUPPORTED_OPENRLHF[-1]
FILE = Path(__file__).with_name(f"openrlhf-{VERSION}.yaml")
# Its default is the time at which the parser was made.
TIMED = "logger.wandb.run_name"
TYPES = {"int": int, "float": float, "str": str}
Kind = Literal["store", "store_true", "store_false"]
KINDS: Mapping[str, Kind] = {
    "_StoreAction": "store",
    "_StoreTrueAction": "store_true",
    "_StoreFalseAction": "store_false",
}


class RecordedFlag(BaseModel):
    """One flag as argparse's `add_argument` takes it; None leaves argparse's own choice."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    action: Kind
    dest: str | None = None
    type: Literal["int", "float", "str"] | None = None
    nargs: int | str | None = None
    choices: tuple[str, ...] | None = None
    default: Any = None

    def keywords(self) -> dict[str, Any]:
        """The keyword arguments."""
        kind = {"type": TYPES[self.type]} if self.type else {}
        return {**self.model_dump(exclude_none=True), **kind}


RECORD = TypeAdapter(dict[str, RecordedFlag])


def is_installed() -> bool:
    """Whether there is an OpenRLHF to ask, of whatever version."""
    return importlib.util.find_spec("openrlhf") is not None


@cache
def recorded_parser() -> argparse.ArgumentParser:
    """A parser that takes and gives what OpenRLHF's does, but for the default of `logger.wandb.run_name`."""
    parser = HostParser()
    for name, flag in RECORD.validate_python(yaml.safe_load(FILE.read_text(encoding="utf-8"))).items():
        parser.add_argument(f"--{name}", **flag.keywords())
    return parser


def record_text(parser: argparse.ArgumentParser) -> str:
    """The record of a parser: YAML, a line for each flag."""
    flags = {each.option_strings[0].removeprefix("--"): each for each in parser._actions if each.dest != "help"}
    return "".join(f"{name}: {_line(_flag(name, action))}" for name, action in flags.items())


def _line(flag: RecordedFlag) -> str:
    return yaml.safe_dump(flag.model_dump(exclude_none=True), default_flow_style=True, sort_keys=False, width=1000)


def _flag(name: str, action: argparse.Action) -> RecordedFlag:
    kind = KINDS[type(action).__name__]
    return RecordedFlag(
        action=kind,
        dest=action.dest if action.dest != name else None,
        type=action.type.__name__ if action.type else None,  # type: ignore[union-attr]
        nargs=action.nargs if kind == "store" else None,
        choices=tuple(action.choices) if action.choices else None,
        default=None if name == TIMED else action.default,
    )


if __name__ == "__main__":
    FILE.write_text(record_text(host_parser()), encoding="utf-8")
