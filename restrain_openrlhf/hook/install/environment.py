"""Hands the configuration of a run to each of its processes, in an environment variable that every Ray worker gets."""

import os
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from restrain_openrlhf.config.checks.keys import uncorrected_rollouts
from restrain_openrlhf.config.host_flags import parse
from restrain_openrlhf.config.yaml_file import HookConfig, Key, load_hook_config
from restrain_openrlhf.errors import ConfigError, HookNotActiveError
from restrain_openrlhf.method import build

VARIABLE = "RESTRAIN_HOOK"
# Names the agent's configuration file where OpenRLHF runs without our entry point.
FILE_VARIABLE = "RESTRAIN_CONFIG"
PROGRAM = "train_ppo_ray"
UNMARKED = (
    "Leave eval.dataset out, and evaluate saved models with `restrain eval`; or start the run by python -m "
    "restrain_openrlhf.hook.train_ppo_ray, which marks the rows of an evaluation and grades them by their labels."
)


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
    asked += [f"the method {method.name!r} reads votes of earlier steps"] if method.reads_history else []
    asked += [f"the method {method.name!r} trains on some of the prompts only"] if method.selection else []
    if asked:
        raise ConfigError(
            f"{path}: {asked[0]}, which the agent cannot do without the hook. Start the run with `python -m "
            "restrain_openrlhf.hook.train_ppo_ray` (docs/journeys/integration.md), or leave it out."
        )


def refuse_lost_rewards(command: str) -> None:
    """Raises ConfigError if the command's trainer would not train on the agent's rewards unchanged, or evaluates.

    A command that is not OpenRLHF's own program, or has flags that are not on record, is not checked.
    """
    flags = _flags(command)
    if flags is None:
        return
    estimator = flags["algo.advantage.estimator"]
    if estimator != "flash_reinforce" and not (estimator == "reinforce" and flags["algo.advantage.no_std_norm"]):
        raise ConfigError(
            f"algo.advantage.estimator is {estimator!r}: the agent's rewards are advantages already, of which this "
            "estimator would make others. Set --algo.advantage.estimator flash_reinforce, or before 0.11.2 reinforce "
            "with --algo.advantage.no_std_norm (docs/journeys/integration.md)."
        )
    if flags["algo.dynamic_filtering_enable"]:
        raise ConfigError(
            "algo.dynamic_filtering_enable drops groups by their mean score: RESTRAIN's penalised groups all have "
            "score 0 and would never be trained on. Remove it."
        )
    if flags["eval.dataset"]:
        raise ConfigError(f"eval.dataset is set: its rows would vote, as those of training do. {UNMARKED}")
    if reason := uncorrected_rollouts(flags):
        raise ConfigError(reason)


def _flags(command: str) -> Mapping[str, Any] | None:
    try:
        words = shlex.split(command)
        start = next(number for number, word in enumerate(words, start=1) if PROGRAM in word)
        return vars(parse(words[start:]))
    except (ValueError, StopIteration, ConfigError):
        return None


def trainers_command() -> str:
    """The command line that started this process's Ray job; empty if Ray does not tell."""
    from ray._private.worker import global_worker  # noqa: PLC0415 - the configuration is read where there is no Ray, too

    if not global_worker.connected:
        return ""
    only = {"skip_submission_job_info_field": True, "skip_is_running_tasks_field": True}
    try:
        job = global_worker.gcs_client.get_all_job_info(**only)[global_worker.current_job_id]
        return str(job.entrypoint)
    except (AttributeError, TypeError, KeyError):
        # This is not part of Ray's public interface, so other versions of Ray may not have it.
        return ""
