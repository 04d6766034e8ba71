"""Scores groups in threads beside the event loop, and counts what came of them."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from restrain_openrlhf.reward.metrics import Metrics
from restrain_openrlhf.reward.protocol import GroupReply
from restrain_openrlhf.scoring import GroupScorer

T = TypeVar("T")


@dataclass(frozen=True)
class ScorerWorker:
    """The trainer's own scorer, and threads to use it in."""

    scorer: GroupScorer
    metrics: Metrics
    pool: ThreadPoolExecutor

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run it in one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, work)

    async def score(self, work: Callable[[], GroupReply], truncated: int, outcome: str = "full") -> GroupReply:
        """What `work` makes of a group, full or partial, with so many truncated responses. Raises as `work` does."""
        since = time.perf_counter()
        try:
            reply = await self.in_thread(work)
        except Exception:
            self.metrics.groups.labels("failed").inc()
            raise
        self.metrics.scored(reply, truncated, outcome, time.perf_counter() - since)
        return reply
