"""The list of checks, and how they are run: one after the other, a failed one stops no other."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from restrain_openrlhf.errors import ConfigError, RestrainError, did_you_mean
from restrain_openrlhf.gpu_check.adapting import check_adaptation
from restrain_openrlhf.gpu_check.gradient import check_gradient
from restrain_openrlhf.gpu_check.memory import check_memory
from restrain_openrlhf.gpu_check.outcome import Outcome, Verdict, failed
from restrain_openrlhf.gpu_check.sampling import check_sampling
from restrain_openrlhf.gpu_check.setting import Setting
from restrain_openrlhf.gpu_check.speed import check_speed
from restrain_openrlhf.gpu_check.stack import check_doctor, check_kernels
from restrain_openrlhf.gpu_check.training import check_training


@dataclass(frozen=True)
class Check:
    """One check, by the name that `--only` and `--skip` take."""

    name: str
    run: Callable[[Setting], list[Outcome]]


@dataclass(frozen=True)
class Result:
    """What a check found, and how long it took."""

    check: str
    outcomes: tuple[Outcome, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether none of its lines failed."""
        return all(outcome.verdict is not Verdict.FAILED for outcome in self.outcomes)


CHECKS = (
    Check("doctor", check_doctor),
    Check("kernels", check_kernels),
    Check("gradient", check_gradient),
    Check("sampling", check_sampling),
    Check("training", check_training),
    Check("memory", check_memory),
    Check("adapt", check_adaptation),
    Check("speed", check_speed),
)
NAMES = tuple(check.name for check in CHECKS)


def choose(only: Sequence[str], skip: Sequence[str]) -> tuple[Check, ...]:
    """The checks that are named, in their own order; all but the skipped where none is. Raises ConfigError."""
    for name in (*only, *skip):
        if name not in NAMES:
            raise ConfigError(f"{name!r} is no check.{did_you_mean(name, NAMES)} There are: {', '.join(NAMES)}.")
    chosen = tuple(check for check in CHECKS if check.name in (only or NAMES) and check.name not in skip)
    if not chosen:
        raise ConfigError("Every check is skipped. Leave out a --skip.")
    return chosen


def run_check(check: Check, setting: Setting) -> Result:
    """Run one. An error of ours is a line that failed; anything else is a defect of the check and ends the command."""
    start = time.monotonic()
    try:
        outcomes = tuple(check.run(setting))
    except RestrainError as error:
        outcomes = (failed(check.name, str(error)),)
    return Result(check.name, outcomes, time.monotonic() - start)
