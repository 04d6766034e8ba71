"""The host's command line: its own parser, the flags that a run sets unless told otherwise, and the agent's file."""

import argparse
import ast
import importlib.util
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.errors import ConfigError, HostError, did_you_mean
from restrain_openrlhf.hook import contract


class HostParser(argparse.ArgumentParser):
    """argparse, but a wrong flag is our error and does not end the process."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"OpenRLHF's command line refuses the flags: {message}.")


@cache
def host_parser() -> argparse.ArgumentParser:
    """The parser that openrlhf/cli/train_ppo_ray.py builds under `if __name__ == "__main__"`.

    That block's statements up to `args = parser.parse_args()` are run from the installed file; nothing heavy is
    imported. Raises HostError where the file no longer has this shape.
    """
    contract.check_version()
    source = _source()
    statements = _parser_statements(ast.parse(source.read_text(encoding="utf-8")), source)
    from datetime import datetime  # noqa: PLC0415 - a name the host's statements use

    namespace: dict[str, object] = {"argparse": SimpleNamespace(ArgumentParser=HostParser), "datetime": datetime}
    exec(compile(ast.Module(statements, []), str(source), "exec"), namespace)
    parser = namespace["parser"]
    assert isinstance(parser, argparse.ArgumentParser)
    return parser


def _source() -> Path:
    spec = importlib.util.find_spec(contract.ENTRY_POINT)
    if spec is None or spec.origin is None:
        raise HostError(f"{contract.ENTRY_POINT} was not found in the installed OpenRLHF.")
    return Path(spec.origin)


def _parser_statements(module: ast.Module, source: Path) -> list[ast.stmt]:
    for block in module.body:
        if isinstance(block, ast.If) and "__name__" in ast.dump(block.test):
            for index, statement in enumerate(block.body):
                if isinstance(statement, ast.Assign) and "parse_args" in ast.dump(statement):
                    return block.body[:index]
    raise HostError(f"{source} no longer builds its parser in its main block, which the hook relies on.")


def to_arguments(flags: Mapping[str, object], parser: argparse.ArgumentParser | None = None) -> list[str]:
    """Command-line words for flags under OpenRLHF's dotted names; `parser` is the installed host's unless given.

    True switches a flag on, False and None leave it out, a list gives several values. Raises ConfigError for a name
    OpenRLHF does not have, with the nearest one it has.
    """
    parser = parser or host_parser()
    known = {option.removeprefix("--") for option in parser._option_string_actions}
    arguments: list[str] = []
    for name, value in flags.items():
        if name not in known:
            hint = did_you_mean(name, known, block="openrlhf.") or " See `python -m openrlhf.cli.train_ppo_ray --help`."
            raise ConfigError(f"openrlhf: {name!r} is not a flag of OpenRLHF's train_ppo_ray.{hint}")
        arguments += _words(name, value, parser)
    return arguments


def _words(name: str, value: object, parser: argparse.ArgumentParser) -> list[str]:
    takes_value = parser._option_string_actions[f"--{name}"].nargs != 0
    if value is None or value is False:
        return []
    if value is True:
        if takes_value:
            raise ConfigError(f"openrlhf: {name} needs a value; true is only for switches.")
        return [f"--{name}"]
    if not takes_value:
        raise ConfigError(f"openrlhf: {name} is a switch: give true or false, not {value!r}.")
    if isinstance(value, list | tuple):
        return [f"--{name}", *(str(part) for part in value)]
    return [f"--{name}", str(value)]


def parse(arguments: Sequence[str], parser: argparse.ArgumentParser | None = None) -> argparse.Namespace:
    """The host's flat namespace (dotted names) for these words; `parser` is the installed host's unless given.

    Raises ConfigError as the host would exit.
    """
    return (parser or host_parser()).parse_args(list(arguments))


def host_flags(config: RunConfig) -> dict[str, object]:
    """All of a run's flags: the defaults below, then the configuration's own."""
    run_dir = config.run_dir
    defaults: dict[str, object] = {
        # The hook replaces the estimator; this is the one it accepts.
        "algo.advantage.estimator": "group_norm",
        # KL as a loss term (eq. 7), weighed as in the paper's D.2, with the estimator of GRPO (the paper names none).
        "algo.kl.use_loss": True,
        "algo.kl.estimator": "k3",
        "algo.kl.init_coef": 0.001,
        # 0 adds nothing to the loss and makes the host log the policy's entropy.
        "actor.entropy_coef": 0,
        # The best checkpoint by evaluation would be chosen by gold.
        "ckpt.best_metric_key": "none",
        # The host never saves checkpoints unless told to, and a killed run could not go on.
        "ckpt.save_steps": 10,
        # One is whole while the next is written. The host keeps three, of 14 bytes for every parameter.
        "ckpt.max_num": 2,
        "ckpt.load_enable": True,
        "ckpt.path": str(run_dir / "checkpoints"),
        "ckpt.output_dir": str(run_dir / "model"),
        "logger.tensorboard_dir": str(run_dir / "tensorboard"),
        "logger.wandb.run_name": run_dir.name,
        "data.input_key": "problem",
    }
    return {**defaults, **config.openrlhf}


MODULE = "restrain_openrlhf.hook.agent"


def agent_path() -> Path:
    """The file for --train.agent_func_path. Raises HostError where this package is not a folder of files."""
    spec = find_spec(MODULE)
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise HostError(f"{MODULE} has no file that OpenRLHF could load. Install restrain-openrlhf from its wheel.")
    return Path(spec.origin)


def is_agent(path: str) -> bool:
    """Whether this is that file, or one like it in another place, as another node may have it."""
    given, own = Path(path), agent_path()
    return given == own or (given.is_file() and given.read_bytes() == own.read_bytes())
