"""Which of the models saved on the way is whole and last good, and which are removed."""

import json
import math

import pytest

from restrain_openrlhf.config.yaml_file import StopRules
from restrain_openrlhf.hook.launch.stop_rules import Alarm, alarm, last_good, prune, saved_models
from restrain_openrlhf.records.folder import Completion, RunFolder
from tests.records.steps import steps

ALARM = Alarm("kl", since=5, step=6, value=1.0, limit=0.15)


@pytest.fixture
def run(tmp_path):
    """Saved after steps 2, 4 and 6, beside DeepSpeed's own folder."""
    folder = RunFolder(tmp_path / "train")
    for name in ("global_step2_hf", "global_step4_hf", "global_step6_hf", "_actor"):
        (folder.checkpoints / name).mkdir(parents=True)
    return folder


def test_a_model_is_whole_when_a_later_step_is_there(run):
    assert list(saved_models(run, steps(6))) == [2, 4]
    assert list(saved_models(run, steps(7))) == [2, 4, 6]
    assert list(saved_models(run, [])) == []


def test_the_last_model_counts_once_the_run_has_ended(run):
    assert saved_models(run, steps(6), Completion(steps=6))[6] == run.model
    assert list(saved_models(run, steps(6), Completion(steps=6, stopped="why"))) == [2, 4]


def test_the_last_good_one_is_from_before_the_alarm(run):
    models = saved_models(run, steps(7))
    assert last_good(models, steps(7), None) == 6
    assert last_good(models, steps(7), ALARM) == 4
    assert last_good([6], steps(7), ALARM) == 0


def test_pruning_keeps_newest_and_last_good(run):
    prune(run, steps(7), ALARM)
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["_actor", "global_step4_hf", "global_step6_hf"]


def test_pruning_leaves_one_that_is_being_written(run):
    prune(run, steps(6), None)
    assert (run.checkpoints / "global_step6_hf").exists()


def kept_step_by_step(run, rules, every=1, **series):
    """A model is saved after `every` steps, and the rules are asked after each step; what is chosen in the end."""
    (count,) = {len(values) for values in series.values()}
    for number in range(1, count + 1):
        rows = steps(number, **{name: values[:number] for name, values in series.items()})
        if number % every == 0:
            (run.checkpoints / f"global_step{number}_hf").mkdir(parents=True, exist_ok=True)
        found = alarm(rows, 0.1, rules)
        prune(run, rows, found, 0 if found else rules.patience)
        if found is not None:
            return last_good(saved_models(run, rows), rows, found)
    return None


@pytest.mark.parametrize("patience", [1, 2, 3, 5])
def test_the_last_good_model_is_still_there_when_a_patient_rule_fires(tmp_path, patience):
    """KL passes its limit from step 5 on: the model of step 4 is the last good one, however late that is known."""
    run = RunFolder(tmp_path / "train")
    assert kept_step_by_step(run, StopRules(patience=patience), kl=[0.1] * 4 + [0.2] * 6) == 4


def test_the_model_before_a_streak_is_still_there_where_few_are_saved(tmp_path):
    """KL is too high from step 8 on, whose model is the second of two: the first is the last good one."""
    run = RunFolder(tmp_path / "train")
    assert kept_step_by_step(run, StopRules(patience=3), every=4, kl=[0.1] * 7 + [0.2] * 4) == 4


def test_a_streak_that_ends_does_not_take_along_what_another_needs(tmp_path):
    """KL is too high from step 3 to 6, the entropy too low from step 5 to 9: the second rule fires."""
    run = RunFolder(tmp_path / "train")
    kl, entropy = [0.1, 0.1, 0.2, 0.2, 0.2, 0.2, 0.1, 0.1, 0.1], [1.0] * 4 + [0.05] * 5
    assert kept_step_by_step(run, StopRules(patience=5), kl=kl, entropy=entropy) == 4
    names = sorted(path.name for path in run.checkpoints.iterdir())
    assert names == ["global_step4_hf", "global_step8_hf", "global_step9_hf"]


NAN = math.nan


@pytest.mark.parametrize(
    ("kl", "expected"),
    [
        ([0.2, NAN, 0.3, NAN, NAN, 0.1, 0.1], 6),  # steps 2 and 4 are followed by, or are, one without a KL
        ([0.1, 0.1, 0.1, 0.1, 0.1, NAN, 0.1], 4),
        ([0.1, 0.1, 0.1, 0.1, 0.1, 0.1, NAN], 4),  # step 7 begins from the model of step 6
        ([NAN] * 7, 0),
    ],
)
def test_a_model_whose_kl_is_not_finite_is_never_chosen(run, kl, expected):
    """Where no rule has ended the run, too."""
    rows = steps(7, kl=kl)
    assert last_good(saved_models(run, rows), rows, None) == expected


def test_a_kl_that_was_null_in_the_file_is_not_one_that_was_not_computed(tmp_path):
    """As the hook writes a row: a KL of NaN, and no entropy."""
    from restrain_openrlhf.hook.run_log import finite
    from restrain_openrlhf.records.metrics import ENTROPY, KL, LOSS, read_steps

    row = {"step": 1, **finite({KL: NAN, LOSS: 0.5, "text": "x"}), "votes": {}}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row, allow_nan=False) + "\n")
    (read,) = read_steps(tmp_path / "metrics.jsonl")
    assert math.isnan(read.numbers[KL])
    assert ENTROPY not in read.numbers
    assert read.broken == (KL,)
