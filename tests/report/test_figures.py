"""The paper's figures: their numbers worked by hand, their pictures really drawn."""

import csv

import pytest
from matplotlib import image

from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.estimators import reliability
from restrain_openrlhf.evaluation.figures.curves import Panel, RunCurves, draw_panels, number
from restrain_openrlhf.evaluation.figures.effects import draw_effect, order, points, save_effect
from restrain_openrlhf.evaluation.figures.reliability import save_reliability
from restrain_openrlhf.evaluation.grade import GradeRow
from restrain_openrlhf.records.collapse import Collapse, Signal
from restrain_openrlhf.records.metrics import KL
from tests.evaluation.test_table import result
from tests.test_time.steps import steps


def graded(*answers, gold="1"):
    return GradeRow(id="p", gold=gold, answers=answers, correct=[answer == gold for answer in answers])


def test_reliability_by_majority_size():
    rows = reliability(
        [
            graded("1", "1", "1", "2"),  # majority of 3, right
            graded("2", "2", "1", "2"),  # majority of 3, wrong, but a right one is there
            graded("2", "3", "4", None),  # majority of 1, nothing right
            graded(None, None, None, None),
        ]
    )
    assert [(row.size, row.problems) for row in rows] == [(0, 1), (1, 1), (3, 2)]
    three = rows[2]
    assert (three.n, three.pass_at_n, three.majority_accuracy, three.mean_accuracy) == (4, 1.0, 0.5, 0.5)
    assert (rows[1].pass_at_n, rows[1].majority_accuracy) == (0.0, 0.0)


def test_sizes_count_equal_answers_and_compare_at_one_n():
    (row,) = reliability([graded("1/2", "0.5", "2", None)])
    assert row.size == 2
    with pytest.raises(DataError, match=r"\[1, 2\] rollouts"):
        reliability([graded("1"), graded("1", "1")])


@pytest.mark.parametrize("count", range(1, 10))
def test_the_reliability_figure_of_majorities_that_are_all_right_is_drawn(tmp_path, count):
    save_reliability(reliability([graded("1", "1")] * count), "toy", tmp_path)


def test_the_reliability_figure_and_its_table_are_written(tmp_path):
    picture, table = save_reliability(reliability([graded("1", "1"), graded("1", "2")]), "toy", tmp_path)
    assert image.imread(picture).std() > 0.01
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["size"], row["pass_at_n"]) for row in rows] == [("1", "1.0"), ("2", "1.0")]


def sweep():
    values = [("0", 0.2), ("0.5", 0.4), ("inf", 0.3), ("2", 0.35), ("10", 0.1)]
    return [result("aime24", "AIME24", value, sigma=x, method="restrain") for x, value in values]


def test_values_stand_in_order_with_infinity_last():
    assert [point.x for point in points(sweep(), "sigma", None)] == ["0", "0.5", "2", "10", "inf"]
    assert sorted(["∞", "none", "10", "9", "-1"], key=order) == ["-1", "9", "10", "∞", "none"]


def test_seeds_of_one_value_are_averaged_with_their_range():
    results = [result("a", "A", value, step="10", method="ttrl") for value in (0.2, 0.4)]
    (point,) = points(results, "step", "method")
    assert (point.benchmark, point.line, point.x, point.runs) == ("A", "ttrl", "10", 2)
    assert (point.pass_at_1, point.low, point.high) == pytest.approx((0.3, 0.2, 0.4))
    (single,) = points(results[:1], "step", "method")
    assert (single.low, single.high) == pytest.approx((0.15, 0.25))
    assert (single.samples_low, single.samples_high) == pytest.approx((0.18, 0.22))
    assert point.samples_low is None


def test_a_single_runs_interval_over_samples_is_a_stroke_inside_the_band():
    (point,) = points([result("a", "A", 0.2, step="10")], "step", None)
    line, stroke = draw_effect([point], "step").axes[0].lines
    assert list(stroke.get_ydata()) == pytest.approx([0.18, 0.22])
    assert list(line.get_ydata()) == pytest.approx([0.2])


def test_lines_are_drawn_to_scale_only_where_every_value_is_a_number():
    finite = points([one for one in sweep() if one.provenance.labels["sigma"] != "inf"], "sigma", "method")
    axes = draw_effect(finite, "sigma").axes[0]
    assert list(axes.lines[0].get_xdata()) == [0.0, 0.5, 2.0, 10.0]
    axes = draw_effect(points(sweep(), "sigma", "method"), "sigma").axes[0]
    assert list(axes.lines[0].get_xdata()) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "0.5", "2", "10", "inf"]
    assert list(axes.lines[0].get_ydata()) == pytest.approx([0.2, 0.4, 0.35, 0.1, 0.3])


def test_the_effect_figure_and_its_table_are_written(tmp_path):
    results = [*sweep(), result("amc23", "AMC23", 0.7, sigma="1")]
    picture, table = save_effect(points(results, "sigma", None), "sigma", tmp_path / "new")
    assert image.imread(picture).std() > 0.01
    assert table.read_text().splitlines()[0] == "benchmark,line,sigma,pass_at_1,low,high,runs,samples_low,samples_high"
    assert len(table.read_text().splitlines()) == 7


def test_a_runs_collapse_is_marked_in_every_curve_of_it():
    rows = steps(4, kl=[0.1, 0.2, 0.3, 0.4])
    panels = [Panel("KL", number(KL)), Panel("not logged", lambda _row: None)] * 3
    runs = [
        RunCurves("fell", rows, Collapse(2, Signal.VOTES, 4)),
        RunCurves("held", rows, Collapse(None, Signal.VOTES, 4)),
    ]
    first, second = draw_panels(runs, panels).axes[:2]
    assert [list(line.get_xdata()) for line in first.lines if line.get_linestyle() == ":"] == [[2, 2]]
    assert not second.lines
    assert draw_panels(runs, panels).get_supxlabel() == "dotted: Model Collapse Step"
    assert draw_panels(runs[1:], panels).get_supxlabel() == ""


def test_a_run_without_the_label_is_refused():
    with pytest.raises(DataError, match=r"no label 'delta' \(it has sigma, method\).*--label delta=VALUE"):
        points(sweep(), "delta", None)


def test_a_step_whose_number_was_not_finite_is_marked_even_where_every_step_is_such():
    rows = steps(4, kl=[0.1, float("nan"), 0.2, float("nan")])
    run = RunCurves("one", rows, Collapse(None, Signal.VOTES, 4))
    lost = RunCurves("other", steps(4, kl=float("nan")), Collapse(None, Signal.VOTES, 4))
    figure = draw_panels([run, lost], [Panel("KL", number(KL))] * 6)
    marks = [list(line.get_xdata()) for line in figure.axes[0].lines if line.get_marker() == "x"]
    assert marks == [[2, 4], [1, 2, 3, 4]]
    assert "no finite number" in figure.get_supxlabel()
