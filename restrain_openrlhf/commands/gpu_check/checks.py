"""The list of checks, and how they are run: one after the other, a failed one stops no other."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from restrain_openrlhf.commands.gpu_check.engine import check_sampling
from restrain_openrlhf.commands.gpu_check.gradient import check_gradient
from restrain_openrlhf.commands.gpu_check.memory import check_memory
from restrain_openrlhf.commands.gpu_check.outcome import CheckOutcome, CheckResult, failed
from restrain_openrlhf.commands.gpu_check.small_run import check_adaptation, check_training
from restrain_openrlhf.commands.gpu_check.stack import check_doctor, check_kernels
from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.errors import ConfigError, RestrainError, did_you_mean

# Of the command's own folder, new or empty, and the configuration of the run that is to be started afterwards, if any.
Check = Callable[[Path, RunConfig | None], list[CheckOutcome]]

# By the names that `--only` takes, in the order in which they run.
CHECKS: Mapping[str, Check] = {
    "doctor": check_doctor,
    "kernels": check_kernels,
    "gradient": check_gradient,
    "sampling": check_sampling,
    "training": check_training,
    "memory": check_memory,
    "adapt": check_adaptation,
}


def choose(only: Sequence[str]) -> list[str]:
    """The named checks, or all, in the order of CHECKS. Raises ConfigError for an unknown name."""
    for name in only:
        if name not in CHECKS:
            raise ConfigError(
                f"{name!r} is not a check.{did_you_mean(name, CHECKS)} The checks are: {', '.join(CHECKS)}."
            )
    return [name for name in CHECKS if name in (only or CHECKS)]


def run_check(name: str, out: Path, config: RunConfig | None = None) -> CheckResult:
    """Run a check.

    One of our own errors is a failed line; any other error is a bug of the check and ends the command.
    """
    start = time.monotonic()
    try:
        outcomes = CHECKS[name](out, config)
    except RestrainError as error:
        outcomes = [failed(name, str(error))]
    return CheckResult(name, tuple(outcomes), time.monotonic() - start)
