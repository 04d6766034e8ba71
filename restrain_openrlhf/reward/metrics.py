"""What Prometheus reads of the service; no text of a prompt or a rollout is in it."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.process_collector import ProcessCollector

SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)
SHARES = tuple(step / 10 for step in range(1, 11))


class Metrics:
    """All meters of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self.requests = counter("restrain_requests", "Replies", ["path", "status"])
        self.reply_seconds = histogram("restrain_reply_seconds", "Request to reply", ["path"], buckets=SECONDS)
        self.pending = gauge("restrain_pending_requests", "Requests that are not answered yet")
        self.draining = gauge("restrain_draining", "1 while the service drains")
        self.slots = counter("restrain_slots", "Rollouts that took a slot of a group", ["kind"])
        self.gone = counter("restrain_gone_requests", "Connections closed by the client before the reply")
        self.held = counter("restrain_held_requests", "Requests told to come again after timing.hold")
        self.neutral = counter("restrain_neutral_rollouts", "Rollouts answered without an advantage")
        self.groups = counter("restrain_groups", "Groups by what became of them", ["outcome"])
        self.penalized = counter("restrain_penalized_groups", "Groups without consensus")
        self.evaluated = counter("restrain_evaluated_rollouts", "Rows with a label, graded", ["correct"])
        self.answers = counter("restrain_answers", "Rollouts by their answer", ["kind"])
        self.majority = histogram("restrain_majority_share", "Share of the commonest answer", buckets=SHARES)
        self.score_seconds = histogram("restrain_score_seconds", "Wait for a thread, and scoring", buckets=SECONDS)
        self.residual_timeouts = counter("restrain_residual_timeouts", "Answers that latex2sympy2 took too long over")
        self.residual_deaths = counter("restrain_residual_deaths", "Answers that latex2sympy2's process died at")
