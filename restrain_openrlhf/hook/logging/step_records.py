"""A training step's numbers: those that JSON has a word for, and Ray metrics for Prometheus."""

import math
import re
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

from ray.util.metrics import Gauge

from restrain_openrlhf.hook.rollout.group_columns import GENERATED
from restrain_openrlhf.records.metrics import GENERATED_PER_SECOND, NOT_FINITE, TRAINED_PER_SECOND, TRAINED_TOKENS

RUN = "run"
# Times of the host, in seconds (trainer/ppo_trainer.py and ppo_trainer_async.py).
GENERATION, TRAINING = "timing/generation", "timing/ppo_train"
SPEEDS = {GENERATED_PER_SECOND: (GENERATED, GENERATION), TRAINED_PER_SECOND: (TRAINED_TOKENS, TRAINING)}


def finite(status: Mapping[str, Any]) -> dict[str, float | None]:
    """The numbers among the values. JSON has no word for NaN: a diverged metric is None, and must not stop the run.

    Readers take None for NaN (records/metrics.py); a number that was not computed is absent.
    """
    return {name: value if math.isfinite(value) else None for name, value in numbers(status).items()}


def numbers(status: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among the values."""
    return {name: value for name, value in status.items() if isinstance(value, int | float)}


def not_finite(status: Mapping[str, Any]) -> dict[str, float]:
    """How many of the numbers are not finite, as one number more: a finite one, which every alarm can be set on."""
    return {NOT_FINITE: float(sum(not math.isfinite(value) for value in numbers(status).values()))}


def tokens_per_second(numbers: Mapping[str, float]) -> dict[str, float]:
    """Response tokens generated and trained on, per second; what a step did not do, or took no time, is left out."""
    return {
        name: numbers[tokens] / numbers[seconds]
        for name, (tokens, seconds) in SPEEDS.items()
        if tokens in numbers and numbers.get(seconds)
    }


def publish(run: str, step: int, numbers: Mapping[str, float], at: float | None = None) -> dict[str, float]:
    """Set one gauge per number; returns what was set, by the names Ray exports with `ray_` before them.

    One that is not finite is set to NaN, lest the last healthy value stays.
    `restrain/majority_share_mean` becomes restrain_majority_share_mean, a number of the host's such as `kl`
    restrain_host_kl. `at` is the step's time, in seconds since the epoch (now, if None).
    """
    values = {gauge_name(name): value if math.isfinite(value) else math.nan for name, value in numbers.items()}
    values |= {"restrain_step": float(step), "restrain_last_step_timestamp_seconds": time.time() if at is None else at}
    for name, value in values.items():
        _gauge(name).set(float(value), {RUN: run})
    return values


def gauge_name(name: str) -> str:
    """A metric's name under Prometheus' rules, marked as the host's unless it is ours."""
    ours = name.startswith("restrain/")
    text = name.removeprefix("restrain/")
    return ("restrain_" if ours else "restrain_host_") + re.sub(r"[^a-zA-Z0-9]+", "_", text).strip("_").lower()


@cache
def _gauge(name: str) -> Gauge:
    return Gauge(name, description="Of the last training step; see docs/operations/kubernetes.md.", tag_keys=(RUN,))
