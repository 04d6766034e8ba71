"""A step's numbers under the names that alerts and dashboards ask for."""

import pytest

from tests.hook.test_trainer_metrics import votes


@pytest.mark.host
def test_every_finite_number_of_a_step_is_published():
    pytest.importorskip("ray", reason="needs ray: make install")
    from restrain_openrlhf.hook.step_records import publish

    status = {"kl": 0.5, "policy_loss": float("nan"), "timing/ppo_train": 2.0}
    status |= {f"restrain/{name}": value for name, value in votes().scalars().items()}
    values = publish("a-run", 7, status, at=100.0)
    assert (values["restrain_host_kl"], values["restrain_host_timing_ppo_train"]) == (0.5, 2.0)
    assert values["restrain_missing_share_of_voters"] == 6 / 16
    assert (values["restrain_step"], values["restrain_last_step_timestamp_seconds"]) == (7.0, 100.0)
    assert "restrain_host_policy_loss" not in values


@pytest.mark.host
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("restrain/top_answer_share", "restrain_top_answer_share"),
        ("rollout/response_length_mean", "restrain_host_rollout_response_length_mean"),
        ("entropy_loss", "restrain_host_entropy_loss"),
    ],
)
def test_names_are_prometheus_own(name, expected):
    pytest.importorskip("ray", reason="needs ray: make install")
    from restrain_openrlhf.hook.step_records import gauge_name

    assert gauge_name(name) == expected
