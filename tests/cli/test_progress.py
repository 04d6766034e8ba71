"""Progress as people see it: a bar on a terminal, plain lines elsewhere."""

import io

import pytest
from rich.console import Console

from restrain_openrlhf.records.metrics import StepRow
from restrain_openrlhf.training.progress import step_progress

VOTES = {
    "majority_share_mean": 0.5,
    "low_consensus_share": 0.1,
    "missing_share_of_voters": 0.0,
    "top_answer_share": 0.2,
}


def shown(terminal, *last_phase):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=160, color_system=None)
    with step_progress("run", console) as (on_phase, on_step):
        on_phase("starting")
        on_step(StepRow(3, {}, VOTES), 20)
        for name in last_phase:
            on_phase(name)
    return screen.getvalue()


def test_a_terminal_shows_the_step_and_its_votes():
    text = shown(True)
    assert "3/20" in text
    assert "majority 0.50  penalised 0.10" in text


def test_a_new_phase_starts_without_the_old_ones_total():
    last_frame = shown(True, "voting").rsplit("\r", 1)[-1]
    assert "run: voting" in last_frame
    assert "20" not in last_frame


def test_elsewhere_every_event_is_a_line():
    lines = shown(False, "voting").splitlines()
    assert [line.split("  ")[0] for line in lines] == ["run: starting", "run: step 3/20", "run: voting"]


@pytest.mark.parametrize("terminal", [True, False])
def test_the_first_step_with_many_missing_answers_is_warned_of_and_no_other(terminal):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=300, color_system=None)
    with step_progress("run", console) as (_, on_step):
        for step, share in enumerate([0.2, 0.21, 0.9], start=1):
            on_step(StepRow(step, {}, {**VOTES, "missing_share_of_voters": share}), 3)
    assert screen.getvalue().count("have no answer and do not vote") == 1
    assert "warning: 21% of the rollouts of step 2" in screen.getvalue()
