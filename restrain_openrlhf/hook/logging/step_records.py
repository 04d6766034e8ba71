"""The numbers of a training step, as JSON can hold them and as Ray metrics for Prometheus."""

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
# The host's metrics of time, in seconds (trainer/ppo_trainer.py and ppo_trainer_async.py).
GENERATION, TRAINING = "timing/generation", "timing/ppo_train"
SPEEDS = {GENERATED_PER_SECOND: (GENERATED, GENERATION), TRAINED_PER_SECOND: (TRAINED_TOKENS, TRAINING)}


def finite(status: Mapping[str, Any]) -> dict[str, float | None]:
    """The numbers among the values, with None for those that are not finite, which JSON cannot hold.

    Readers take None for NaN (records/metrics.py). A number that was not computed is absent.
    """
    return {name: value if math.isfinite(value) else None for name, value in numbers(status).items()}


def numbers(status: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among the values."""
    return {name: value for name, value in status.items() if isinstance(value, int | float)}


def not_finite(status: Mapping[str, Any]) -> dict[str, float]:
    """The count of numbers that are not finite, as one more metric, on which every monitoring can set an alarm."""
    return {NOT_FINITE: float(sum(not math.isfinite(value) for value in numbers(status).values()))}


def tokens_per_second(numbers: Mapping[str, float]) -> dict[str, float]:
    """Response tokens generated and trained on per second; a speed is left out where the step has no time for it."""
    return {
        name: numbers[tokens] / numbers[seconds]
        for name, (tokens, seconds) in SPEEDS.items()
        if tokens in numbers and numbers.get(seconds)
    }


def publish(run: str, step: int, numbers: Mapping[str, float], at: float | None = None) -> dict[str, float]:
    """Set one gauge per number. Returns the values by gauge name, which Ray exports with the prefix `ray_`.

    A number that is not finite is set to NaN, so that the last finite value does not stay.
    `restrain/majority_share_mean` becomes restrain_majority_share_mean, and a number of the host's such as `kl` becomes
    restrain_host_kl. `at` is the step's time in seconds since the epoch; None means now.
    """
    values = {gauge_name(name): value if math.isfinite(value) else math.nan for name, value in numbers.items()}
    values |= {"restrain_step": float(step), "restrain_last_step_timestamp_seconds": time.time() if at is None else at}
    for name, value in values.items():
        _gauge(name).set(float(value), {RUN: run})
    return values


def gauge_name(name: str) -> str:
    """A metric's name under Prometheus' rules, with `host` in it unless the metric is ours."""
    ours = name.startswith("restrain/")
    text = name.removeprefix("restrain/")
    return ("restrain_" if ours else "restrain_host_") + re.sub(r"[^a-zA-Z0-9]+", "_", text).strip("_").lower()


@cache
def _gauge(name: str) -> Gauge:
    return Gauge(name, description="Of the last training step; see docs/operations/kubernetes.md.", tag_keys=(RUN,))
