"""The names under which Prometheus finds our metrics: from the code that exports them."""

import dataclasses

from restrain_openrlhf.scoring.vote_statistics import StepVotes

# Numbers that OpenRLHF's own trainer adds to each step's (trainer/ppo_trainer.py): tests/hook/test_trainers.py.
HOST = (
    "rollout/response_length_mean",
    "timing/generation",
    "timing/make_experience",
    "timing/ppo_train",
    "timing/broadcast",
    "timing/step_total",
)
# That its policy does (trainer/ray/ppo_actor.py): tests/hook/test_gradient.py.
HOST_POLICY = ("actor_grad_norm",)


def training() -> set[str]:
    from restrain_openrlhf.hook.policy.actor import PEAK_MEMORY
    from restrain_openrlhf.hook.run_log import gauge_name

    names = {gauge_name(name) for name in [*of_the_trainer(), *of_the_policy(), PEAK_MEMORY]}
    return {f"ray_{name}" for name in names | {"restrain_step", "restrain_last_step_timestamp_seconds"}}


def of_the_trainer() -> set[str]:
    """As they are logged, in every row."""
    from restrain_openrlhf.hook.policy.experience import LogProbGap
    from restrain_openrlhf.hook.run_log import SPEEDS
    from restrain_openrlhf.records.metrics import NOT_FINITE

    numbers = ("int", "float", int, float)
    votes = {f"restrain/{field.name}" for field in dataclasses.fields(StepVotes) if field.type in numbers}
    gap = {f"restrain/{name}" for name in LogProbGap.__dataclass_fields__}
    return votes | gap | {NOT_FINITE, *SPEEDS, *HOST}


def of_the_policy() -> set[str]:
    """As they are logged, where there is a reference policy and OpenRLHF computes entropies."""
    from restrain_openrlhf.hook.policy.actor import MEANS
    from restrain_openrlhf.records.metrics import TRAINED_TOKENS

    return {*MEANS, TRAINED_TOKENS, *HOST_POLICY}


def service() -> set[str]:
    """As exported."""
    from restrain_openrlhf.scoring.service.requests import Metrics

    exported = set()
    for family in Metrics().registry.collect():
        endings = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        exported |= {family.name + ending for ending in endings}
    return exported
