"""How full vLLM's cache of keys and values became: watched in each rollout actor, asked by the trainer at each step."""

from collections.abc import Sequence
from typing import Any

import ray

CACHE_PEAK = "restrain/kv_cache_peak"


class CachePeak:
    """A stat logger, as vLLM calls it after each of its engine's steps (v1/metrics/loggers.py, StatLoggerManager)."""

    def __init__(self) -> None:
        self._peak = 0.0

    def record(self, scheduler_stats: Any, *_: Any, **__: Any) -> None:
        """Keep the highest share of the cache's blocks in use."""
        if scheduler_stats is not None:
            self._peak = max(self._peak, scheduler_stats.kv_cache_usage)

    def log(self) -> None:
        """Nothing: the trainer asks."""

    def log_engine_initialized(self) -> None:
        """Nothing."""

    def record_sleep_state(self, *_: Any, **__: Any) -> None:
        """Nothing: a sleeping engine takes no step."""

    def take(self) -> float:
        """The highest since the last call."""
        peak, self._peak = self._peak, 0.0
        return peak


def watch_cache(actor: Any) -> None:
    """Add the logger to this rollout actor's engine (trainer/ray/vllm_engine.py, RolloutRayActor)."""
    actor.restrain_cache_peak = CachePeak()
    actor.llm.logger_manager.stat_loggers.append(actor.restrain_cache_peak)


def cache_peak(engines: Sequence[Any]) -> dict[str, float]:
    """The fullest engine's share in [0, 1] since the last call; nothing without engines."""
    if not engines:
        return {}
    return {CACHE_PEAK: max(ray.get([engine.__ray_call__.remote(_take) for engine in engines]))}


def _take(actor: Any) -> float:
    """Runs inside a rollout actor."""
    peak: float = actor.restrain_cache_peak.take()
    return peak
