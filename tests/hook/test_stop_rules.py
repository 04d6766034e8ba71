"""A run ends early on signals without gold, after enough steps in a row, and never for its majorities."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.answers import parse_kind
from restrain_openrlhf.config.documents import typed
from restrain_openrlhf.config.yaml_file import StopRules
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.hook.launch import stop_rules
from restrain_openrlhf.hook.launch.stop_rules import Watch, alarm, unwatched, with_labels
from restrain_openrlhf.records.folder import Completion, RunFolder
from restrain_openrlhf.records.metrics import GRADIENT_NORM, HELD_OUT_FILE, KL, LOSS, append_row, read_steps
from tests.command_line import refused, restrain
from tests.records.steps import step, steps

BASE = 0.1
RULES = StopRules()


def test_a_jump_of_the_kl_ends_it_at_the_second_step_in_a_row():
    found = alarm(steps(6, kl=[0.0, 0.2, 0.1, 0.2, 0.3, 0.4]), BASE, RULES)
    assert (found.rule, found.since, found.step, found.value, found.limit) == ("kl", 4, 5, 0.3, 0.15)
    assert str(found) == "the KL to the base model passed its limit from step 4 to step 5 (0.3, limit 0.15)"


def test_a_template_answer_that_spreads_ends_it():
    found = alarm(steps(4, top=[0.1, 0.5, 0.6, 0.7]), BASE, RULES)
    assert (found.rule, found.since, found.step, found.limit) == ("template", 3, 4, 0.5)


def test_few_prompts_may_well_have_one_answer():
    assert alarm(steps(4, top=1.0, prompts=4), BASE, RULES) is None
    assert alarm(steps(4, top=1.0), 1.0, RULES) is None, "a single problem has one majority from the start"


def test_an_entropy_that_falls_to_a_tenth_ends_it():
    found = alarm(steps(6, entropy=[1.0, 1.2, 0.8, 0.1, 0.09, 0.09]), BASE, RULES)
    assert (found.rule, found.since, found.step, found.limit) == ("entropy", 5, 6, 0.1)


def test_the_first_of_several_alarms_counts():
    assert alarm(steps(6, kl=[0, 0, 0, 1, 1, 1], top=[0.1, 0.1, 0.9, 0.9, 0.9, 0.9]), BASE, RULES).rule == "template"


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_the_majorities_alone_never_stop_a_run(shares):
    assert alarm(steps(len(shares), majority=shares), BASE, RULES) is None


@given(st.lists(st.floats(0, 0.4), min_size=2, max_size=30))
def test_an_alarm_once_raised_stays(kls):
    """More steps later never take it back or move it: a resumed run decides as the one that was killed."""
    rows = steps(len(kls), kl=kls)
    first = next((found for end in range(len(rows)) if (found := alarm(rows[: end + 1], BASE, RULES))), None)
    assert alarm(rows, BASE, RULES) == first


NAN = math.nan


def test_a_kl_that_is_not_finite_is_the_loudest_alarm():
    """At once, and as part of a limit that is passed: [.2, NaN] is passed in both steps."""
    found = alarm(steps(5, kl=[0.2, NAN, 0.3, NAN, NAN]), BASE, RULES)
    assert (found.rule, found.since, found.step, found.trusted_until) == ("kl", 1, 2, 0)
    assert str(found) == "the KL to the base model was no finite number at step 2"
    later = alarm(steps(9, kl=[0.01] * 7 + [NAN, 0.01]), BASE, StopRules(patience=5))
    assert (later.since, later.step, later.trusted_until) == (8, 8, 6), "step 8 begins from the policy of step 7"


@pytest.mark.parametrize(("name", "words"), [(LOSS, "the policy loss"), (GRADIENT_NORM, "the gradient's norm")])
def test_so_is_any_other_number_of_the_policy(name, words):
    rows = steps(4)
    rows[2] = replace(rows[2], numbers={**rows[2].numbers, name: NAN})
    assert str(alarm(rows, BASE, RULES)) == f"{words} was no finite number at step 3"


def test_an_entropy_that_is_lost_in_the_first_steps_does_not_turn_its_rule_off_unseen():
    found = alarm(steps(6, entropy=[1.0, NAN, 1.0, 0.1, 0.1, 0.1]), BASE, RULES)
    assert (found.rule, found.step) == ("entropy", 2)


def test_what_is_not_logged_is_not_watched_and_is_told():
    rows = steps(4, kl=None, top=0.9, prompts=2)
    assert alarm(rows, BASE, RULES) is None
    assert unwatched(rows) == ["the KL to the base model", "the share of prompts with the same majority answer"]


def test_without_a_reference_the_first_steps_say_what_the_share_was():
    rows = steps(6, top=[0.2, 0.3, 0.4, 0.6, 0.8, 0.8])
    found = alarm(rows, None, RULES)
    assert (found.rule, found.since, found.step) == ("template", 5, 6)
    assert found.limit == pytest.approx(0.3 + 0.4)
    assert alarm(rows[:2], None, RULES) is None, "a share that two steps have logged is none yet"


@pytest.fixture
def ended(tmp_path):
    """A run of four steps whose KL is too high from step 3 on, with models of steps 2 and 3 and one at its end."""
    folder = RunFolder(tmp_path / "train")
    for number, kl in enumerate([0.1, 0.1, 0.2, 0.3], start=1):
        row = step(number, top=0.85)
        folder.path.mkdir(exist_ok=True)
        append_row(folder.metrics, number, {**row.numbers, KL: kl, "votes": dict(row.votes)})
    for number in (2, 3):
        (folder.checkpoints / f"global_step{number}_hf").mkdir(parents=True)
    return folder


def test_a_run_is_judged_with_its_last_good_model(ended):
    found = Watch(ended, StopRules(template=1), 0.5).judged(
        Completion(steps=4, stopped="KL"), read_steps(ended.metrics), "base"
    )
    good = ended.checkpoints / "global_step2_hf"
    assert (found.chosen_step, found.chosen_model, found.steps, found.stopped) == (2, str(good), 4, "KL")
    assert found.alarm == "the KL to the base model passed its limit from step 3 to step 4 (0.3, limit 0.15)"
    assert (
        found.ending == f"A stop rule ended training early: {found.alarm}. The last good model is the model of step 2."
    )
    assert good.exists()


def test_rules_that_do_not_end_a_run_say_what_they_saw_and_leave_the_last_model(ended):
    rules = StopRules(template=1, ends=False)
    watch = Watch(ended, rules, 0.5)
    assert watch.should_stop(read_steps(ended.metrics)) is None
    found = watch.judged(Completion(steps=4), read_steps(ended.metrics), "base")
    assert (found.chosen_step, found.chosen_model) == (4, str(ended.model))
    assert found.ending.startswith("A stop rule fired and did not end training: the KL")


def test_labels_choose_among_the_saved_models_with_an_interval(ended):
    """48 problems x 4; step 1 is best and was not saved. Wilson's bounds of 24 of 48 are .5 ± .136, by hand."""
    assert with_labels(ended, Completion(steps=4), "base").by_labels is None
    for number, right in enumerate([0.2, 0.9, 0.4, 0.5, 0.5]):
        row = {"eval_default_pass1": right, "eval_default_pass4": 1.0, "eval_num_samples": 192.0}
        append_row(ended.path / HELD_OUT_FILE, number, row)
    watch = Watch(ended, StopRules(template=1), 0.5)
    watch.should_stop(read_steps(ended.metrics))
    judged = watch.judged(Completion(steps=4, stopped="KL"), read_steps(ended.metrics), "base")
    found = with_labels(ended, judged, "base").by_labels
    assert (found.step, found.model) == (3, str(ended.checkpoints / "global_step3_hf"))
    assert found.interval == pytest.approx((0.364, 0.636), abs=1e-3)
    assert judged.chosen_step == 2
    assert str(found).endswith("is the model of step 3: pass@1 50.0% [36.4%, 63.6%].")
    append_row(ended.path / HELD_OUT_FILE, 0, {"eval_a_pass1": 0.1, "eval_b_pass1": 0.3, "eval_num_samples": 9})
    base = with_labels(ended, judged, "base").by_labels
    assert (base.step, base.model, base.pass_at_1, base.interval) == (0, "base", 0.2, None), (
        "of two sets no size is known"
    )


def test_the_best_by_labels_is_not_deleted(ended):
    """Of models of steps 1 to 3 and the end, the rules keep 2, the last good one, and the end."""
    (ended.checkpoints / "global_step1_hf").mkdir()
    append_row(ended.path / HELD_OUT_FILE, 1, {"eval_default_pass1": 0.9})
    Watch(ended, StopRules(template=1), 0.5).judged(Completion(steps=4), read_steps(ended.metrics), "base")
    assert sorted(path.name for path in ended.checkpoints.iterdir()) == ["global_step1_hf", "global_step2_hf"]


def test_the_base_models_share_counts_equal_answers_as_one(ended, tmp_path, monkeypatch):
    """100 and 100.001 are within the tolerance: half of the base's prompts have one answer, and .85 is no alarm."""
    keys = ("100", "100001/1000", "7", "8")
    votes = SimpleNamespace(rows=[SimpleNamespace(majority_key=key) for key in keys])
    monkeypatch.setattr(stop_rules, "load_reference", {tmp_path: votes}.get)
    kind = parse_kind({"name": "number"})
    config = SimpleNamespace(run_dir=ended.path, answers=kind, reference=tmp_path)
    assert Watch.of(config, StopRules(kl=1)).base_share == 0.5
    rows = read_steps(ended.metrics)
    for rules, fires in ((StopRules(kl=1), False), (StopRules(kl=1, template=0.3), True)):
        assert bool(Watch.of(config, rules).judged(Completion(steps=4), rows, "base").alarm) is fires


@pytest.mark.parametrize(
    ("rule", "message"),
    [({"kl": "-1"}, "stop: kl is '-1': .*greater than 0"), ({"majority": "0.9"}, "'majority'. Known: kl")],
)
def test_rules_that_are_none(rule, message):
    with pytest.raises(ConfigError, match=message):
        typed(StopRules, rule, "stop")


def test_a_run_that_saves_no_model_on_the_way_has_no_last_good_one():
    words = ("show", "cpu/demo_addition", "--set", "stop.kl=0.1")
    assert "Set ckpt.save_hf to true and ckpt.save_steps" in refused(*words)
    assert restrain(*words, "--set", "openrlhf.ckpt.save_hf=true").returncode == 0
    assert restrain(*words, "--set", "stop.ends=false").returncode == 0
