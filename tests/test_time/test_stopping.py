"""A run ends early on signals without gold, after enough steps in a row, and never for its majorities."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.records.metrics import GRADIENT_NORM, LOSS
from test_time.stopping import StopRules, alarm, parse_stop_rules, unwatched, watched_signals
from tests.test_time.steps import steps

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


def test_an_entropy_that_falls_to_a_quarter_ends_it():
    found = alarm(steps(6, entropy=[1.0, 1.2, 0.8, 0.25, 0.24, 0.24]), BASE, RULES)
    assert (found.rule, found.since, found.step, found.limit) == ("entropy", 5, 6, 0.25)


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


@pytest.mark.parametrize(
    ("series", "near", "passed"),
    [
        ({"kl": 0.11, "top": 0.41, "entropy": 0.41}, [], []),
        ({"kl": [0.01, 0.01, 0.01, 0.13]}, ["KL"], []),
        ({"top": [0.1, 0.1, 0.1, 0.43]}, ["top answer"], []),
        ({"entropy": [1.0, 1.0, 1.0, 0.39]}, ["entropy"], []),
        ({"kl": [0.13, 0.01, 0.01, 0.16], "entropy": [1.0, 1.0, 1.0, 0.2]}, ["KL", "entropy"], ["KL", "entropy"]),
        ({"kl": [0.01, 0.01, 0.01, math.nan]}, [], []),
        ({"kl": None, "top": 0.9, "prompts": 2}, [], []),
    ],
)
def test_a_signal_is_near_its_limit_from_four_fifths_of_the_way_on(series, near, passed):
    """Of the defaults' limits, and a base model with a share of 0.1: KL 0.12, the share 0.42, the entropy 0.4."""
    found = watched_signals(steps(4, **series), BASE, RULES)
    assert [each.name for each in found if each.is_near] == near
    assert [each.name for each in found if each.is_passed] == passed


def test_an_entropy_is_not_watched_before_its_start_is_known():
    assert [each.name for each in watched_signals(steps(2), BASE, RULES)] == ["KL", "top answer"]


def test_rules_of_ones_own():
    assert parse_stop_rules(["kl=0.5", "patience=3"]) == StopRules(kl=0.5, patience=3)
    assert parse_stop_rules([]) == RULES


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("kl", "--stop kl: .*number"),
        ("kl=-1", "--stop kl: .*greater than 0"),
        ("kl=nan", "--stop kl: "),
        ("majority=0.9", "--stop majority: .*kl, template, entropy, patience"),
        ("patience=0", "--stop patience: .*greater than or equal to 1"),
        ("patience=1.5", "--stop patience: .*integer"),
    ],
)
def test_rules_that_are_none(item, message):
    with pytest.raises(ConfigError, match=message):
        parse_stop_rules([item])
