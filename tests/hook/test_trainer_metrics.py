"""metrics.jsonl: one row per step, also after a kill."""

import math

import numpy as np
import pytest

from restrain_openrlhf.data.jsonl import FollowedFile
from restrain_openrlhf.hook.launch.train import Watched
from restrain_openrlhf.hook.run_log import append_step, finite, not_finite, publish
from restrain_openrlhf.records.metrics import read_steps
from restrain_openrlhf.scoring.vote_statistics import step_votes


def vote(count, missing=0, truncated=0, voters=4, penalized=0):
    """A group's columns; its prompt has the weight one half."""
    return {
        "voters": voters, "majority_count": count, "effective_labels": float(count > 0), "missing": missing,
        "truncated": truncated, "penalized": penalized, "prompt_weight": 0.5,
        "generated_tokens": 10,
    }  # fmt: skip


def step_of(*groups, majorities=(1,)):
    columns = {name: np.array([float(group[name]) for group in groups]) for name in groups[0]}
    positive, negative = np.tile([0.3, 0.0, 0.0, 0.0], len(groups)), np.tile([0.0, -0.4, 0.0, 0.0], len(groups))
    return step_votes([str(place) for place in range(len(groups))], columns, majorities, positive, negative)


def votes():
    """The answers 1 1 2 -, 3 3 3 3, 1 5 6 - and none, of which one was cut off."""
    return step_of(
        vote(2, missing=1),
        vote(4),
        vote(1, missing=1, penalized=1),
        vote(0, missing=4, truncated=1, penalized=1),
        majorities=(11, 33, 11, None),
    )


def test_vote_statistics_of_worked_groups():
    found = votes()
    assert found.majority_histogram == (1, 1, 1, 0, 1)
    assert (found.prompts, found.voters) == (4, 16)
    assert found.majority_share_mean == (0.5 + 1 + 0.25 + 0) / 4
    assert found.low_consensus_share == 0.5
    assert found.unanimous_share == 0.25
    assert found.missing_share_of_voters == 6 / 16
    assert found.truncated_share_of_voters == 1 / 16
    assert found.top_answer_share == 0.5
    assert (found.advantage_pos_norm, found.advantage_neg_norm) == pytest.approx((0.6, 0.8))
    assert found.effective_labels_mean == 0.75
    assert found.prompt_weight_mean == 0.5
    assert found.generated_tokens == 40


def test_rows_of_a_killed_run_are_replaced(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for step in (1, 2, 3):
        append_step(path, step, {"kl": float(step), "generated_samples": ["x"]}, votes())
    with path.open("a") as file:
        file.write('{"step": 4, "kl"')
    append_step(path, 3, {"kl": 30.0}, votes())
    rows = read_steps(path)
    assert [row.step for row in rows] == [1, 2, 3]
    assert [row.numbers["kl"] for row in rows] == [1.0, 2.0, 30.0]


def test_who_follows_a_run_sees_it_go_back_and_waits_for_the_end_of_a_line(tmp_path):
    path, reported, asked = tmp_path / "metrics.jsonl", [], []
    watched = Watched(FollowedFile(path), lambda row: reported.append(row.step), lambda rows: asked.append(
        [(row.step, row.numbers["kl"]) for row in rows]))  # fmt: skip
    watched.look()
    for step in (1, 2, 3):
        append_step(path, step, {"kl": 0.0}, votes())
    with path.open("a") as file:
        file.write('{"step": 4, "kl"')
    watched.look()
    append_step(path, 2, {"kl": 1.0}, votes())
    watched.look()
    append_step(path, 3, {"kl": 1.0}, votes())
    append_step(path, 4, {"kl": 1.0}, votes())
    watched.look()
    for step in (4, 5, 6):
        append_step(path, step, {"kl": 2.0}, votes())
    watched.look()
    assert reported == [1, 2, 3, 4, 5, 6]
    back = [(1, 0.0), (2, 1.0), (3, 1.0)]
    assert asked == [[(1, 0.0), (2, 0.0), (3, 0.0)], [*back, (4, 1.0)], [*back, (4, 2.0), (5, 2.0), (6, 2.0)]]


def test_every_number_of_a_step_is_published_and_one_that_is_not_finite_does_not_keep_its_last_value():
    pytest.importorskip("ray", reason="needs ray: make install")
    status = {"kl": 0.5, "policy_loss": float("nan"), "timing/ppo_train": 2.0}
    status |= {f"restrain/{name}": value for name, value in votes().scalars().items()}
    values = publish("a-run", 7, status, at=100.0)
    assert (values["restrain_host_kl"], values["restrain_host_timing_ppo_train"]) == (0.5, 2.0)
    assert values["restrain_missing_share_of_voters"] == 6 / 16
    assert (values["restrain_step"], values["restrain_last_step_timestamp_seconds"]) == (7.0, 100.0)
    assert math.isnan(values["restrain_host_policy_loss"])


def test_how_many_are_not_finite_is_a_number_that_alarms_can_be_set_on():
    pytest.importorskip("ray", reason="needs ray: make install")
    nan, infinite = float("nan"), float("inf")
    assert not_finite({"restrain/kl": nan, "actor_grad_norm": infinite, "policy_loss": 0.5, "text": "x"}) == {
        "restrain/not_finite_numbers": 2.0
    }
    assert finite(not_finite({"kl": 0.5})) == {"restrain/not_finite_numbers": 0.0}
    assert publish("a-run", 7, not_finite({"kl": nan}))["restrain_not_finite_numbers"] == 1.0
