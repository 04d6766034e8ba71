"""A step's numbers under the names that alerts and dashboards ask for."""

import math

import pytest

pytest.importorskip("ray", reason="needs ray: make install")

from restrain_openrlhf.hook.run_log import finite, not_finite, publish
from tests.hook.test_trainer_metrics import votes


def test_every_number_of_a_step_is_published_and_one_that_is_not_finite_does_not_keep_its_last_value():
    status = {"kl": 0.5, "policy_loss": float("nan"), "timing/ppo_train": 2.0}
    status |= {f"restrain/{name}": value for name, value in votes().scalars().items()}
    values = publish("a-run", 7, status, at=100.0)
    assert (values["restrain_host_kl"], values["restrain_host_timing_ppo_train"]) == (0.5, 2.0)
    assert values["restrain_missing_share_of_voters"] == 6 / 16
    assert (values["restrain_step"], values["restrain_last_step_timestamp_seconds"]) == (7.0, 100.0)
    assert math.isnan(values["restrain_host_policy_loss"])


def test_how_many_are_not_finite_is_a_number_that_alarms_can_be_set_on():
    nan, infinite = float("nan"), float("inf")
    assert not_finite({"restrain/kl": nan, "actor_grad_norm": infinite, "policy_loss": 0.5, "text": "x"}) == {
        "restrain/not_finite_numbers": 2.0
    }
    assert finite(not_finite({"kl": 0.5})) == {"restrain/not_finite_numbers": 0.0}
    assert publish("a-run", 7, not_finite({"kl": nan}))["restrain_not_finite_numbers"] == 1.0
