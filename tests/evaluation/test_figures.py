"""Reliability of majorities, and training curves: their numbers worked by hand, their pictures really drawn."""

from array import array
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib import colormaps, image

from restrain_openrlhf.answers import MATHEMATICS
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.estimators import reliability
from restrain_openrlhf.evaluation.figures import (
    ALL,
    Panel,
    RunCurves,
    distinct_names,
    draw_panels,
    draw_reliability,
    number,
    save_figures,
    save_run_figures,
)
from restrain_openrlhf.evaluation.grade import GradeRow
from restrain_openrlhf.records.metrics import KL, LOSS
from tests.test_time.steps import steps

# Of runs of which only the sizes of majorities are looked at.
NO_CURVES = {panel.title: (array("q"), array("d")) for panel in ALL}


def graded(*answers, gold="1"):
    classes, correct = MATHEMATICS.classes(answers, {}), [answer == gold for answer in answers]
    return GradeRow(id="p", gold=gold, answers=answers, classes=classes, correct=correct)


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
    figure = draw_reliability(reliability([graded("1", "1")] * count), "toy")
    (picture,) = save_figures({"reliability": figure}, tmp_path)
    assert image.imread(picture).std() > 0.01


def test_a_step_whose_number_was_not_finite_is_marked_even_where_every_step_is_such():
    rows = steps(4, kl=[0.1, float("nan"), 0.2, float("nan")])
    panels = [Panel("KL", number(KL))]
    run = RunCurves.of("one", rows, panels)
    lost = RunCurves.of("other", steps(4, kl=float("nan")), panels)
    figure = draw_panels([run, lost], panels * 6)
    marks = [list(line.get_xdata()) for line in figure.axes[0].lines if line.get_marker() == "x"]
    assert marks == [[2, 4], [1, 2, 3, 4]]
    assert legend(figure) == ["one", "other", "no finite number"]
    assert legend(draw_panels([run], panels * 6)) == ["no finite number"]
    assert draw_panels([RunCurves.of("whole", steps(4, kl=0.1), panels)], panels * 6).legends == []


def legend(figure):
    (found,) = figure.legends
    return [text.get_text() for text in found.get_texts()]


def test_a_run_without_a_number_keeps_its_place_in_the_legend_and_others_their_colours():
    """A run without a reference policy has no KL."""
    panels = [Panel("KL", number(KL)), Panel("loss", number(LOSS))]
    without = [replace(row, numbers={LOSS: 0.5}) for row in steps(3, kl=0.1)]
    both = [replace(row, numbers={LOSS: 0.5, KL: 0.1}) for row in steps(3, kl=0.1)]
    figure = draw_panels([RunCurves.of("no KL", without, panels), RunCurves.of("KL", both, panels)], panels * 3)
    assert legend(figure) == ["no KL", "KL"]
    colours = [line.get_color() for line in figure.legends[0].get_lines()]
    kl, loss = figure.axes[:2]
    assert [line.get_color() for line in kl.lines if len(line.get_xdata())] == colours[1:]
    assert [line.get_color() for line in loss.lines] == colours


@pytest.mark.parametrize(("length", "count"), [(5, 12), (30, 6), (70, 5)])
def test_a_legend_of_long_names_is_inside_of_its_figure(length, count):
    panels = [Panel("KL", number(KL))]
    runs = [RunCurves.of("m" * length + str(place), steps(3, kl=0.1), panels) for place in range(count)]
    figure = draw_panels(runs, panels * 6)
    figure.draw_without_rendering()
    box, whole = figure.legends[0].get_window_extent(), figure.bbox
    assert whole.x0 <= box.x0
    assert box.x1 <= whole.x1
    assert box.y1 <= min(axes.get_tightbbox().y0 for axes in figure.axes), "it hides no curve"
    assert min(axes.get_window_extent().height for axes in figure.axes) > 0.2 * whole.height


def test_majority_sizes_of_all_runs_have_one_scale_of_colours(tmp_path):
    """All groups of one run are unanimous; the other's are spread evenly over two sizes, and half as bright."""
    spread = [replace(row, votes={**row.votes, "majority_histogram": [0, 4, 4]}) for row in steps(2)]
    runs = [
        replace(RunCurves.of(name, rows, []), curves=NO_CURVES) for name, rows in (("one", steps(2)), ("even", spread))
    ]
    *_, one, even = (image.imread(path) for path in save_run_figures(runs, tmp_path))
    yellow, teal = (np.array(colormaps["viridis"](share)[:3]) for share in (1.0, 0.5))

    def is_drawn(colour, picture):
        return bool((np.abs(picture[..., :3] - colour).max(axis=-1) < 0.01).mean() > 0.1)

    assert [is_drawn(colour, one) for colour in (yellow, teal)] == [True, False]
    assert [is_drawn(colour, even) for colour in (yellow, teal)] == [False, True]


@pytest.mark.parametrize(
    ("runs", "names"),
    [
        (["runs/demo/restrain/train", "runs/demo/ttrl/train"], ["restrain", "ttrl"]),
        (["runs/a", "runs/b"], ["a", "b"]),
        (["runs/a/seed-1", "runs/b/seed-2"], ["a/seed-1", "b/seed-2"]),
        (["runs/a", "runs/a/b"], ["a", "b"]),
        (["runs/train"], ["train"]),
        (["a/a", "a/a/a"], ["a/a", "a/a/a"]),
    ],
)
def test_runs_are_named_by_what_tells_them_apart(runs, names):
    assert distinct_names([Path(run) for run in runs]) == names
