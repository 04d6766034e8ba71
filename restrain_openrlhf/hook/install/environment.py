"""Hands the configuration of a run to each of its processes, in an environment variable that every Ray worker gets."""

import os
from functools import cache
from pathlib import Path

from restrain_openrlhf.config.yaml_file import HookConfig, Key, load_hook_config
from restrain_openrlhf.errors import ConfigError, HookNotActiveError
from restrain_openrlhf.method import build

VARIABLE = "RESTRAIN_HOOK"
# Names the agent's configuration file where OpenRLHF runs without our entry point.
FILE_VARIABLE = "RESTRAIN_CONFIG"


def to_environment(config: HookConfig) -> dict[str, str]:
    """The environment variable for a worker. The paths in it are absolute, because each worker has its own folder."""
    return {VARIABLE: config.model_dump_json()}


def config_here() -> HookConfig:
    """The configuration this process was started with. Raises HookNotActiveError if there is none."""
    if VARIABLE not in os.environ:
        raise HookNotActiveError(f"{VARIABLE} is not set in this process, so it was not started by a hooked run.")
    return _parsed(os.environ[VARIABLE])


@cache
def _parsed(text: str) -> HookConfig:
    return HookConfig.model_validate_json(text)


def config_of_agent(hooked: bool) -> HookConfig:
    """The configuration in a process that draws rollouts, from our entry point or from the file RESTRAIN_CONFIG.

    Raises HookNotActiveError if our entry point started the run but this process is not hooked, and ConfigError
    where there is no file, or the file needs our entry point.
    """
    if hooked:
        return config_here()
    if VARIABLE in os.environ:
        raise HookNotActiveError("This rollout actor runs without the RESTRAIN hook.")
    if FILE_VARIABLE not in os.environ:
        raise ConfigError(
            f"{FILE_VARIABLE} is not set where the rollouts are drawn. On every Ray node set it to a YAML file that "
            "has `method:`; `ray job submit` can do that with --runtime-env-json."
        )
    path = Path(os.environ[FILE_VARIABLE])
    config = load_hook_config(path)
    _refuse_what_needs_the_entry_point(config, path)
    return config


def _refuse_what_needs_the_entry_point(config: HookConfig, path: Path) -> None:
    method = build(config.method)
    asked = [f"{name} is set" for name in config.written() if name not in HookConfig.keys(Key.AGENT)]
    asked += [f"the method {method.name!r} learns from gold answers"] if method.reads_gold else []
    asked += [f"the method {method.name!r} trains on some of the prompts only"] if method.selection else []
    if asked:
        raise ConfigError(
            f"{path}: {asked[0]}, which the agent cannot do without the hook. Start the run with `python -m "
            "restrain_openrlhf.hook.train_ppo_ray` (docs/journeys/integration.md), or leave it out."
        )
