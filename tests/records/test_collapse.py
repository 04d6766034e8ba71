"""The Model Collapse Step: curves worked by hand, what never changes it, and noise that is none."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.records.collapse import Measurement, collapse_step, read_collapse, tolerance

RISE = [0.3, 0.4, 0.5, 0.6, 0.7]


def curve(shares, samples=1600, start=0, every=10):
    return [Measurement(start + every * place, share, samples) for place, share in enumerate(shares)]


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        (RISE, None),
        ([0.5] * 6, None),
        ([0.0] * 6, None),
        ([*RISE, 0.2, 0.0, 0.0], 40),
        ([0.6, 0.3, 0.1, 0.0], 0),
        ([*RISE, 0.2, 0.1, *RISE], None),  # a dip that recovers
        ([*RISE, 0.0], None),  # one evaluation says nothing of what follows
        ([*RISE, 0.0, 0.0], 40),
        ([*RISE, 0.69, 0.68, 0.2, 0.1], 60),  # as good as the best, noise aside, until step 60
        ([*RISE, 0.65, 0.6, 0.6, 0.6], None),  # a loss of a seventh
        ([*RISE, 0.5, 0.5, 0.5], 40),  # a loss of two sevenths, to stay
        ([*RISE, 0.0, 0.69, 0.0, 0.0], 60),  # it came back once
        ([0.6, 0.0], None),
        ([], None),
    ],
)
def test_curves_by_hand(shares, expected):
    assert collapse_step(curve(shares)) == expected


def test_the_same_fall_of_few_samples_may_be_noise():
    shares = [0.3, 0.4, 0.4, 0.2, 0.2]
    assert collapse_step(curve(shares, samples=1600)) == 20
    assert collapse_step(curve(shares, samples=30)) is None


def test_the_tolerance_is_that_of_the_normal_distribution():
    """One comparison at 1 %: 2.326 standard deviations; ten at 0.1 % each: 3.090."""
    assert tolerance(1) == pytest.approx(2.326, abs=1e-3)
    assert tolerance(10) == pytest.approx(3.090, abs=1e-3)


def test_a_variance_by_hand():
    """50 of 98 and one more on each side: 51 of 100."""
    assert Measurement(0, 50 / 98, 98).variance == pytest.approx(0.51 * 0.49 / 98)
    assert Measurement(0, 0.0, 8).variance == pytest.approx(0.1 * 0.9 / 8)


@pytest.mark.parametrize(("accuracy", "samples"), [(0.05, 64), (0.3, 64), (0.5, 240), (0.95, 64)])
def test_noise_alone_is_no_collapse(accuracy, samples):
    """At a low accuracy a fifth is soon lost, so that the tolerance alone decides."""
    draw = np.random.default_rng(0)
    shares = draw.binomial(samples, accuracy, (1000, 30)) / samples
    assert np.mean([collapse_step(curve(row, samples)) is not None for row in shares.tolist()]) <= 0.01


def test_problems_of_unequal_difficulty_are_no_collapse_either():
    """Rises to 200 problems, each with its own chance, eight samples each, and stays."""
    draw = np.random.default_rng(1)
    for _ in range(200):
        chances = draw.beta(0.3, 0.3, 200)
        means = draw.binomial(8, np.outer(np.minimum(1, np.linspace(0.5, 2, 20)), chances).clip(0, 1)).mean(axis=1) / 8
        assert collapse_step(curve(means.tolist())) is None


def test_a_real_fall_is_found_in_noise_within_one_evaluation():
    draw = np.random.default_rng(2)
    truth = [0.3, 0.4, 0.5, 0.6, 0.6, 0.4, 0.1, 0.0, 0.0]
    found = [collapse_step(curve((draw.binomial(240, truth) / 240).tolist(), 240)) for _ in range(500)]
    assert np.mean([step is not None and abs(step - 40) <= 10 for step in found]) > 0.99


SHARES = st.lists(st.floats(0, 1), min_size=3, max_size=20)


@given(SHARES, st.integers(0, 1000), st.integers(1, 50))
def test_later_steps_shift_the_answer(shares, by, every):
    step = collapse_step(curve(shares, every=every))
    assert collapse_step(curve(shares, every=every, start=by)) == (None if step is None else step + by)


@given(SHARES)
def test_a_later_recovery_removes_it(shares):
    assert collapse_step(curve([*shares, max(shares)])) is None


@given(SHARES, st.integers(2, 5))
def test_a_curve_that_ends_at_zero_collapses_where_its_best_is_certain(shares, zeros):
    found = collapse_step(curve([0.9, *shares, *[0.0] * zeros]))
    assert found is not None
    assert found <= 10 * len(shares)


@given(st.lists(st.floats(0, 1), max_size=20))
def test_a_curve_that_never_falls_never_collapses(shares):
    assert collapse_step(curve(sorted(shares))) is None


def run_folder(path, accuracies):
    rows = [{"step": 5 * at, "eval_default_pass1": one, "eval_num_samples": 800} for at, one in enumerate(accuracies)]
    (path / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("accuracies", "words"),
    [
        ([0.3, 0.6, 0.1, 0.0], "5 (4 evaluations)"),
        ([0.3, 0.6, 0.6], "none (3 evaluations)"),
        ([0.3, 0.6], "not known (2 evaluations; 3 are needed)"),
    ],
)
def test_a_runs_own_is_read_from_its_evaluations(tmp_path, accuracies, words):
    assert str(read_collapse(run_folder(tmp_path, accuracies))) == words


def test_a_run_without_evaluations_has_none_that_is_known(tmp_path):
    assert not read_collapse(tmp_path).is_known
