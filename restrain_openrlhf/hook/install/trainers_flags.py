"""Refuses flags of OpenRLHF's own trainer that the agent cannot serve, where our entry point does not run."""

import shlex
from collections.abc import Mapping
from typing import Any

from ray._private.worker import global_worker

from restrain_openrlhf.config.checks.keys import uncorrected_rollouts
from restrain_openrlhf.config.host_flags import parse
from restrain_openrlhf.errors import ConfigError

PROGRAM = "train_ppo_ray"
UNMARKED = (
    "Leave eval.dataset out, and evaluate saved models with `restrain eval`; or start the run by python -m "
    "restrain_openrlhf.hook.train_ppo_ray, which marks the rows of an evaluation and grades them by their labels."
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
    if not global_worker.connected:
        return ""
    only = {"skip_submission_job_info_field": True, "skip_is_running_tasks_field": True}
    try:
        job = global_worker.gcs_client.get_all_job_info(**only)[global_worker.current_job_id]
        return str(job.entrypoint)
    except (AttributeError, TypeError, KeyError):
        # This is not part of Ray's public interface, so other versions of Ray may not have it.
        return ""
