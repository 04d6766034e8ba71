"""The names under which Prometheus finds our metrics: from the code that exports them."""

import dataclasses

from restrain_openrlhf.vote_statistics import StepVotes

# Numbers that OpenRLHF's own train_step reports (trainer/ppo_trainer.py); seen in a real run by tests/e2e.
HOST = (
    "kl",
    "entropy_loss",
    "actor_grad_norm",
    "rollout/response_length_mean",
    "timing/make_experience",
    "timing/ppo_train",
    "timing/broadcast",
)


def all_of_them() -> set[str]:
    """Training's and the service's."""
    return training() | service()


def training() -> set[str]:
    from restrain_openrlhf.hook.step_records import gauge_name

    votes = [f"restrain/{field.name}" for field in dataclasses.fields(StepVotes)]
    names = {gauge_name(name) for name in [*votes, *HOST]} | {"restrain_step", "restrain_last_step_timestamp_seconds"}
    return {f"ray_{name}" for name in names}


def service() -> set[str]:
    """As exported."""
    from restrain_openrlhf.reward.metrics import Metrics

    exported = set()
    for family in Metrics().registry.collect():
        endings = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        exported |= {family.name + ending for ending in endings}
    return exported
