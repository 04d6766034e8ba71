"""What Prometheus reads of a replica; no text of a prompt or a rollout is in it."""

import time
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from restrain_openrlhf.method import GroupScore
from restrain_openrlhf.reward.seating import Seated

SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)
SHARES = tuple(step / 10 for step in range(1, 11))


@dataclass
class Metrics:
    """All meters of one replica, in a registry of their own."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        registry = self.registry
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        self.requests = Counter("restrain_requests", "Replies", ["path", "status"], registry=registry)
        self.reply_seconds = Histogram(
            "restrain_reply_seconds", "Request to reply", ["path"], buckets=SECONDS, registry=registry
        )
        self.pending = Gauge("restrain_pending_requests", "Requests admitted and not yet answered", registry=registry)
        self.queued = Gauge("restrain_queued_requests", "Requests waiting to be admitted", registry=registry)
        self.draining = Gauge("restrain_draining", "1 while the replica drains", registry=registry)
        self.silence = Gauge(
            "restrain_loop_silence_seconds",
            "Since the main loop last turned",
            registry=registry,
        )
        self.seats = Counter("restrain_seats", "Rollouts seated", ["kind"], registry=registry)
        self.rejoins = Counter(
            "restrain_rejoins", "Seats that the store lost and that were taken again", registry=registry
        )
        self.gone = Counter(
            "restrain_gone_requests", "Connections closed by the client before the reply", registry=registry
        )
        self.held = Counter(
            "restrain_held_requests", "Requests told to come again after timing.hold", registry=registry
        )
        self.neutral = Counter("restrain_neutral_rollouts", "Rollouts answered without an advantage", registry=registry)
        self.groups = Counter("restrain_groups", "Groups closed here", ["outcome"], registry=registry)
        self.penalized = Counter("restrain_penalized_groups", "Groups without consensus", registry=registry)
        self.evaluated = Counter(
            "restrain_evaluated_rollouts", "Rows with a label, graded", ["correct"], registry=registry
        )
        self.answers = Counter("restrain_answers", "Rollouts by their answer", ["kind"], registry=registry)
        self.majority = Histogram(
            "restrain_majority_share", "Share of the commonest answer", buckets=SHARES, registry=registry
        )
        self.score_seconds = Histogram(
            "restrain_score_seconds",
            "Scoring one group, wait for a thread included",
            buckets=SECONDS,
            registry=registry,
        )
        self.store_failures = Counter("restrain_store_failures", "Failed calls of the store", registry=registry)

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)

    def seated(self, seated: Seated) -> None:
        """A rollout was seated."""
        self.seats.labels("late" if seated.late else "retry" if seated.retaken else "first").inc()

    def rejoined(self) -> None:
        """A seat was missing in the store."""
        self.rejoins.inc()

    def store_failed(self) -> None:
        """The store did not answer."""
        self.store_failures.inc()

    def scored(self, score: GroupScore, partial: bool, since: float) -> None:
        """A group was scored; `since` is when its scoring was asked for (time.perf_counter)."""
        self.groups.labels("partial" if partial else "full").inc()
        self.penalized.inc(score.penalized)
        self.majority.observe(score.votes.majority_count / score.votes.n)
        self.score_seconds.observe(time.perf_counter() - since)
