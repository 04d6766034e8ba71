"""Which of the models saved on the way is whole, last good, best without gold, and which are removed."""

import json
import math

import pytest

from restrain_openrlhf.records.folder import Completion, RunFolder
from test_time.stopping import Alarm
from test_time.training import SavedModel, agreement_without_drift, best, last_good, prune, saved_models
from tests.test_time.steps import steps

ALARM = Alarm("kl", since=5, step=6, value=1.0, limit=0.15)


@pytest.fixture
def run(tmp_path):
    """Saved after steps 2, 4 and 6, beside DeepSpeed's own folder."""
    folder = RunFolder(tmp_path / "train")
    for name in ("global_step2_hf", "global_step4_hf", "global_step6_hf", "_actor"):
        (folder.checkpoints / name).mkdir(parents=True)
    return folder


def numbers(models):
    return [model.step for model in models]


def test_a_model_is_whole_when_a_later_step_is_there(run):
    assert numbers(saved_models(run, steps(6))) == [2, 4]
    assert numbers(saved_models(run, steps(7))) == [2, 4, 6]
    assert numbers(saved_models(run, [])) == []


def test_the_last_model_counts_once_the_run_has_ended(run):
    run.mark_completed(Completion(steps=6))
    assert saved_models(run, steps(6))[-1] == SavedModel(6, run.model)
    run.mark_completed(Completion(steps=6, stopped="why"))
    assert numbers(saved_models(run, steps(6))) == [2, 4]


def test_the_last_good_one_is_from_before_the_alarm(run):
    models = saved_models(run, steps(7))
    assert last_good(models, steps(7), None).step == 6
    assert last_good(models, steps(7), ALARM).step == 4
    assert last_good(models[2:], steps(7), ALARM) is None


def test_agreement_without_drift_by_hand():
    rows = steps(5, majority=[0.1, 0.2, 0.6, 0.7, 0.8], kl=[0.0, 0.0, 0.01, 0.02, None])
    assert agreement_without_drift(rows, 4) == pytest.approx(0.5 - 3 * 0.01)
    assert agreement_without_drift(rows, 1) == pytest.approx(0.1)
    assert agreement_without_drift(rows, 5) == pytest.approx(0.7 - 3 * 0.01)


def test_the_best_one_agrees_without_drifting_far(run):
    models = saved_models(run, steps(7))
    assert best(models, steps(7, majority=[0.1 * n for n in range(1, 8)]), None).step == 6
    far = [0.0, 0.0, 0.0, 0.0, 0.3, 0.3, 0.3]
    assert best(models, steps(7, majority=[0.1 * n for n in range(1, 8)], kl=far), None).step == 4
    assert best(models, steps(7, majority=[0.1 * n for n in range(1, 8)]), ALARM).step == 4


def test_pruning_keeps_newest_last_good_and_best(run):
    rows = steps(7, majority=[0.9, 0.9, 0.1, 0.1, 0.2, 0.2, 0.2])
    prune(run, rows, None)
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["_actor", "global_step2_hf", "global_step6_hf"]


def test_pruning_leaves_one_that_is_being_written(run):
    prune(run, steps(6), None)
    assert (run.checkpoints / "global_step6_hf").exists()


NAN = math.nan


@pytest.mark.parametrize(
    ("kl", "expected"),
    [
        ([0.2, NAN, 0.3, NAN, NAN, 0.1, 0.1], 6),  # steps 2 and 4 are followed by, or are, one without a KL
        ([0.1, 0.1, 0.1, 0.1, 0.1, NAN, 0.1], 4),
        ([0.1, 0.1, 0.1, 0.1, 0.1, 0.1, NAN], 4),  # step 7 begins from the model of step 6
        ([NAN] * 7, None),
    ],
)
def test_a_model_whose_kl_is_not_finite_is_never_chosen(run, kl, expected):
    """Whatever its majorities, and where no rule has ended the run."""
    rows = steps(7, majority=[0.1, 0.9, 0.1, 0.9, 0.1, 0.9, 0.9], kl=kl)
    models = saved_models(run, rows)
    chosen, last = best(models, rows, None), last_good(models, rows, None)
    assert (last.step if last else None) == expected
    assert chosen is None or chosen.step in (2, 4) or expected == 6
    assert all(not math.isnan(kl[model.step - 1]) for model in (chosen, last) if model)


def test_a_kl_that_was_null_in_the_file_is_not_one_that_was_not_computed(tmp_path):
    """As the hook writes a row: a KL of NaN, and no entropy."""
    from restrain_openrlhf.hook.logging.step_records import finite
    from restrain_openrlhf.records.metrics import ENTROPY, KL, LOSS, read_steps

    row = {"step": 1, **finite({KL: NAN, LOSS: 0.5, "text": "x"}), "votes": {}}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row, allow_nan=False) + "\n")
    (read,) = read_steps(tmp_path / "metrics.jsonl")
    assert math.isnan(read.numbers[KL])
    assert ENTROPY not in read.numbers
    assert read.broken == (KL,)
