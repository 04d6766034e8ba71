"""A batch that is one optimizer step has no pass for the old policy: equal gradient, equal gap, and the same stop."""

import math
from types import SimpleNamespace

import pytest

from restrain_openrlhf.config.host_flags import record
from restrain_openrlhf.machine.host_releases import installed
from tests.processes import rows_printed

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from restrain_openrlhf.commands.gpu_check.gradient import GradientCase, as_words
from restrain_openrlhf.config.command_line import find_config
from restrain_openrlhf.config.this_machine import HostRun
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.hook.policy.experience import LAST_STEP, PLACE, GapSums, StepGap
from restrain_openrlhf.machine.flash_attention import BY_TORCH
from tests.hook.in_process import Models, drawn_by_the_host, host_arguments, maker_of

CASES = [
    GradientCase(batching="micro-batches", stage=2),
    GradientCase(batching="packed, dynamic", stage=1, attention=BY_TORCH),
    GradientCase(batching="micro-batches", stage=3),
    GradientCase(batching="whole", stage=2, lora=True),
]


@pytest.fixture(scope="module")
def steps():
    return dict(zip(CASES, rows_printed("-m", "tests.hook.own_log_probs_case", *as_words(CASES)), strict=True))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_gradient_and_the_gap_are_those_of_the_hosts_pass(steps, case):
    found = steps[case]
    assert found["theirs"] < 1e-5 > found["ours"]
    ours, theirs = found["gaps"]
    assert ours == pytest.approx(theirs, rel=1e-4)
    assert ours["move"] > 1 < ours["squares"] * 10
    assert found["rollouts"][0] == pytest.approx(found["rollouts"][1], rel=1e-4)
    assert found["logged"] == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_gap_above_the_limit_stops_the_step_before_a_weight_changes(steps, case):
    assert "vLLM has other weights than the policy" in steps[case]["stopped"]
    assert steps[case]["optimizer_steps"] == 0


def test_the_policy_is_not_asked_and_the_steps_own_gap_takes_the_place(hooked, tmp_path):
    class Asked(Models):
        def async_run_method_batch(self, method_name, **batch):
            assert self is not policy, "the policy was asked"
            return super().async_run_method_batch(method_name, **batch)

    hooked({"name": "ttrl"}, own_old_log_probs=True, metrics=tmp_path / "metrics.jsonl")
    arguments, policy = host_arguments(1, 3), Asked()
    maker = maker_of(arguments, policy)
    maker.initial_model_group = Models()
    script = {"1+1=": [r"\boxed{1}", r"\boxed{2}", r"\boxed{2}"]}
    (made,) = maker.make_experience_batch(drawn_by_the_host(script, [""], arguments))
    assert made.action_log_probs.isnan().all()
    assert made.info[PLACE].tolist() == [0, 1, 2]
    record = LAST_STEP[maker]
    assert record.gap is None
    sums = GapSums(tokens=10, size=5, apart=1, squares=0.4, mismatch=2, factor=3, move=100, along=90)
    record = record.measured(StepGap(sums, {1: 0.5, 0: 0.25, 2: None}))
    assert record.rollout_gaps == [0.25, 0.5, None]
    assert record.scalars()["restrain/update_arrived"] == 0.9
    assert (record.gap.logprob_gap_relative, record.gap.logprob_gap, record.rounding) == (0.2, 0.1, math.sqrt(0.04))


PRESET = "dapo14k/qwen3-4b-base/restrain"


@pytest.mark.parametrize(
    ("changed", "own"),
    [
        ({}, True),
        ({"train.batch_size": 1024}, False),
        ({"train.max_epochs": 2}, False),
        ({"ds.lora.rank": 8}, False),
        ({"train.async_enable": True}, False),
    ],
)
def test_it_is_decided_once_from_the_flags(changed, own):
    config = load_run_config(find_config(PRESET))
    run = HostRun.of(config.model_copy(update={"openrlhf": {**config.openrlhf, **changed}, "own_old_log_probs": True}))
    assert run.config.own_old_log_probs is own
    assert HostRun.of(run.config.model_copy(update={"own_old_log_probs": False})).config.own_old_log_probs is False


def test_a_model_with_dropout_is_refused_and_told_the_way_out():
    from restrain_openrlhf.errors import ConfigError
    from restrain_openrlhf.hook.policy.actor import checked_step

    config = SimpleNamespace(attention_dropout=0.1, hidden_size=32)
    trainer = SimpleNamespace(
        strategy=None, args=None, actor=SimpleNamespace(model=SimpleNamespace(module=SimpleNamespace(config=config)))
    )
    with pytest.raises(ConfigError, match="Set own_old_log_probs to false"), checked_step(trainer, None):
        pass


CORRECTIONS = ("token", "off")


@pytest.fixture(scope="module")
def old_steps():
    """A step by each, in a process of its own: DeepSpeed takes hold of the whole process."""
    if "algo.advantage.is_correction_level" not in record(installed()):
        pytest.skip("OpenRLHF before 0.11.2 has other corrections")
    return dict(zip(CORRECTIONS, rows_printed("-m", "tests.hook.one_step_old_case", *CORRECTIONS), strict=True))


def test_with_the_hosts_correction_the_ratio_is_against_the_policy_that_drew(old_steps):
    assert old_steps["token"]["furthest_ratio"] > 0.3
    assert old_steps["token"]["from_papers"] < 1e-5
    assert old_steps["token"]["from_as_new"] > 0.1


def test_without_it_they_are_trained_on_as_if_they_were_new(old_steps):
    """What docs/operations/one_gpu.md says of OpenRLHF's default."""
    assert old_steps["off"]["from_as_new"] < 1e-5
    assert old_steps["off"]["from_papers"] > 0.1
