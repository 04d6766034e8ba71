"""Training curves: their numbers, colours and legends, and the names of runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from restrain_openrlhf.evaluation.figures import (
    RunCurves,
    distinct_names,
    draw_panels,
    number,
)
from restrain_openrlhf.records.metrics import KL, LOSS
from tests.records.steps import steps


def legend(figure):
    (found,) = figure.legends
    return [text.get_text() for text in found.get_texts()]


def test_a_run_without_a_number_keeps_its_place_in_the_legend_and_others_their_colours():
    """A run without a reference policy has no KL."""
    panels = [("KL", number(KL)), ("loss", number(LOSS))]
    without = [replace(row, numbers={LOSS: 0.5}) for row in steps(3, kl=0.1)]
    both = [replace(row, numbers={LOSS: 0.5, KL: 0.1}) for row in steps(3, kl=0.1)]
    figure = draw_panels([RunCurves.of("no KL", without, panels), RunCurves.of("KL", both, panels)], panels * 3)
    assert legend(figure) == ["no KL", "KL"]
    colours = [line.get_color() for line in figure.legends[0].get_lines()]
    kl, loss = figure.axes[:2]
    assert [line.get_color() for line in kl.lines if len(line.get_xdata())] == colours[1:]
    assert [line.get_color() for line in loss.lines] == colours


@pytest.mark.parametrize(("length", "count"), [(5, 12), (22, 6), (30, 6), (70, 5)])
def test_a_legend_of_long_names_is_inside_of_its_figure(length, count):
    panels = [("KL", number(KL))]
    runs = [RunCurves.of("m" * length + str(place), steps(3, kl=0.1), panels) for place in range(count)]
    figure = draw_panels(runs, panels * 6)
    figure.draw_without_rendering()
    box, whole = figure.legends[0].get_window_extent(), figure.bbox
    assert whole.x0 <= box.x0
    assert box.x1 <= whole.x1
    assert box.y1 <= min(axes.get_tightbbox().y0 for axes in figure.axes), "it hides no curve"
    assert draw_panels(runs[:1], panels * 6).legends == []


@pytest.mark.parametrize(
    ("runs", "names"),
    [
        (["runs/restrain/train", "runs/ttrl/train"], ["runs/restrain/train", "runs/ttrl/train"]),
        (["runs/a", "runs/a/b"], ["a", "b"]),
        (["runs/train"], ["train"]),
        (["a/a", "a/a"], ["a/a", "a/a"]),
    ],
)
def test_runs_are_named_by_what_tells_them_apart(runs, names):
    assert distinct_names([Path(run) for run in runs]) == names
