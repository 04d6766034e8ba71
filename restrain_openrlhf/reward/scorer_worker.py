"""Scores groups in threads beside the event loop, and counts what came of them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from restrain_openrlhf.reward.metrics import Metrics
from restrain_openrlhf.reward.wire import GroupReply
from restrain_openrlhf.scoring import GroupScorer


@dataclass(frozen=True)
class ScorerWorker:
    """The trainer's own scorer. Its threads are those of the event loop (limits.scoring_threads)."""

    scorer: GroupScorer
    metrics: Metrics

    async def score(self, work: Callable[[], GroupReply], truncated: int, outcome: str = "full") -> GroupReply:
        """What `work` makes of a group, full or partial, with so many truncated responses. Raises as `work` does."""
        metrics = self.metrics
        with metrics.groups.labels("failed").count_exceptions(), metrics.score_seconds.time():
            group = await asyncio.to_thread(work)
        metrics.groups.labels(outcome).inc()
        missing = group.answers.count(None)
        metrics.answers.labels("given").inc(len(group.answers) - missing)
        metrics.answers.labels("missing").inc(missing - truncated)
        metrics.answers.labels("truncated").inc(truncated)
        metrics.penalized.inc(group.penalized)
        metrics.majority.observe(group.majority_count / len(group.answers))
        metrics.residual_timeouts.inc(group.residual_timeouts)
        metrics.residual_deaths.inc(group.residual_deaths)
        return group
