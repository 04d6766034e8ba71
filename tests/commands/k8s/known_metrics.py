"""The names under which Prometheus finds our metrics: from the code that exports them."""

import dataclasses

from restrain_openrlhf.scoring.vote_statistics import StepVotes

# Numbers that OpenRLHF's own trainer and policy add to each step's (trainer/ppo_trainer.py, trainer/ray/ppo_actor.py):
# tests/hook/test_trainers.py and tests/hook/test_token_means.py.
HOST = (
    "rollout/response_length_mean",
    "timing/generation",
    "timing/make_experience",
    "timing/ppo_train",
    "timing/broadcast",
    "timing/step_total",
    "actor_grad_norm",
)


def training() -> set[str]:
    """Those of a row of `metrics.jsonl`, and the two of the run itself."""
    from restrain_openrlhf.hook.policy.actor import MEANS, PEAK_MEMORY
    from restrain_openrlhf.hook.policy.experience import LogProbGap
    from restrain_openrlhf.hook.run_log import SPEEDS, gauge_name
    from restrain_openrlhf.records.metrics import NOT_FINITE, TRAINED_TOKENS

    numbers = ("int", "float", int, float)
    votes = {f"restrain/{field.name}" for field in dataclasses.fields(StepVotes) if field.type in numbers}
    gap = {f"restrain/{name}" for name in LogProbGap(0, 0, 0, 1).scalars()}
    every = {*votes, *gap, NOT_FINITE, *SPEEDS, *HOST, *MEANS, TRAINED_TOKENS, PEAK_MEMORY}
    return {
        f"ray_{name}" for name in {*map(gauge_name, every), "restrain_step", "restrain_last_step_timestamp_seconds"}
    }


def service() -> set[str]:
    """As exported."""
    from restrain_openrlhf.scoring.service.requests import Metrics

    exported = set()
    for family in Metrics().registry.collect():
        endings = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        exported |= {family.name + ending for ending in endings}
    return exported
