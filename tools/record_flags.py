"""Writes the record of OpenRLHF's flags (restrain_openrlhf/config/openrlhf-VERSION.yaml) from the installed OpenRLHF.

`python tools/record_flags.py`, in an environment with the newest release of restrain_openrlhf/machine/
host_releases.yaml. With an older one it prints what that table lacks of its flags. A test compares them; everything
else reads the two files.
"""

import argparse
import ast
import sys
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from restrain_openrlhf.config.host_flags import ENTRY_POINT, RECORD, HostParser, record
from restrain_openrlhf.errors import HostError
from restrain_openrlhf.machine.host_releases import NEWEST, check_version, installed

# Its default is the time at which the parser was made.
TIMED = "logger.wandb.run_name"
ACTIONS = {"_StoreAction": "store", "_StoreTrueAction": "store_true", "_StoreFalseAction": "store_false"}


def installed_parser() -> argparse.ArgumentParser:
    """The parser that openrlhf/cli/train_ppo_ray.py builds under `if __name__ == "__main__"`.

    That block's statements up to `args = parser.parse_args()` are run from the installed file; nothing heavy is
    imported. Raises HostError where the file has another shape.
    """
    check_version()
    spec = find_spec(ENTRY_POINT)
    if spec is None or spec.origin is None:
        raise HostError(f"{ENTRY_POINT} was not found in the installed OpenRLHF.")
    source = Path(spec.origin)
    statements = _parser_statements(ast.parse(source.read_text(encoding="utf-8")), source)
    namespace: dict[str, Any] = {"argparse": SimpleNamespace(ArgumentParser=HostParser), "datetime": datetime}
    exec(compile(ast.Module(statements, []), str(source), "exec"), namespace)
    parser: argparse.ArgumentParser = namespace["parser"]
    return parser


def _parser_statements(module: ast.Module, source: Path) -> list[ast.stmt]:
    for block in module.body:
        if isinstance(block, ast.If) and "__name__" in ast.dump(block.test):
            for index, statement in enumerate(block.body):
                if isinstance(statement, ast.Assign) and "parse_args" in ast.dump(statement):
                    return block.body[:index]
    raise HostError(f"{source} has no main block that builds its parser. Read it, and change this script.")


def record_text(parser: argparse.ArgumentParser) -> str:
    """The record of a parser: YAML, a line for each flag."""
    flags = {each.option_strings[0].removeprefix("--"): each for each in parser._actions if each.dest != "help"}
    return "".join(f"{name}: {_line(_keywords(name, action))}" for name, action in flags.items())


def differences(text: str) -> str:
    """What the flags of a record have otherwise than the table says of the installed release, in the table's form."""
    found, known = yaml.safe_load(text), record(installed())
    differing = [name for name in {**known, **found} if found.get(name) != known.get(name)]
    return "".join(f"{name}: {_line(found[name]) if name in found else 'null' + chr(10)}" for name in differing)


def _line(keywords: dict[str, Any]) -> str:
    given = {key: value for key, value in keywords.items() if value is not None}
    return yaml.safe_dump(given, default_flow_style=True, sort_keys=False, width=1000)


def _keywords(name: str, action: argparse.Action) -> dict[str, Any]:
    """What `add_argument` takes; None leaves argparse's own choice."""
    kind = ACTIONS[type(action).__name__]
    default = list(action.default) if isinstance(action.default, tuple) else action.default
    return {
        "action": kind,
        "dest": action.dest if action.dest != name else None,
        "type": getattr(action.type, "__name__", None),
        "nargs": action.nargs if kind == "store" else None,
        "choices": list(action.choices) if action.choices else None,
        "default": None if name == TIMED else default,
    }


if __name__ == "__main__":
    text = record_text(installed_parser())
    if installed() is NEWEST:
        RECORD.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(differences(text))
