"""Reliability of majorities, and training curves: their numbers worked by hand, their pictures really drawn."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib import colormaps, image

from restrain_openrlhf.answers import MATHEMATICS
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
from restrain_openrlhf.evaluation.grade import GradeRow, reliability
from restrain_openrlhf.records.metrics import KL, LOSS
from tests.test_time.steps import steps

# Of runs of which only the sizes of majorities are looked at.
NO_CURVES = {panel.title: ([], []) for panel in ALL}


def graded(*answers, gold="1"):
    classes, correct = MATHEMATICS.classes(answers, {}), [answer == gold for answer in answers]
    return GradeRow(id="p", gold=gold, answers=answers, classes=classes, correct=correct)


@pytest.mark.parametrize("count", [1, 9])
def test_the_reliability_figure_of_majorities_that_are_all_right_is_drawn(tmp_path, count):
    figure = draw_reliability(reliability([graded("1", "1")] * count), "toy")
    (picture,) = save_figures({"reliability": figure}, tmp_path)
    assert image.imread(picture).std() > 0.01


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


@pytest.mark.parametrize(("length", "count"), [(5, 12), (70, 5)])
def test_a_legend_of_long_names_is_inside_of_its_figure(length, count):
    panels = [Panel("KL", number(KL))]
    runs = [RunCurves.of("m" * length + str(place), steps(3, kl=0.1), panels) for place in range(count)]
    figure = draw_panels(runs, panels * 6)
    figure.draw_without_rendering()
    box, whole = figure.legends[0].get_window_extent(), figure.bbox
    assert whole.x0 <= box.x0
    assert box.x1 <= whole.x1
    assert box.y1 <= min(axes.get_tightbbox().y0 for axes in figure.axes), "it hides no curve"
    assert draw_panels(runs[:1], panels * 6).legends == []


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
        (["runs/demo/restrain/train", "runs/demo/ttrl/train"], ["restrain/train", "ttrl/train"]),
        (["runs/a", "runs/a/b"], ["a", "b"]),
        (["runs/train"], ["train"]),
        (["a/a", "a/a"], ["a/a", "a/a"]),
    ],
)
def test_runs_are_named_by_what_tells_them_apart(runs, names):
    assert distinct_names([Path(run) for run in runs]) == names
