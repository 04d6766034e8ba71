"""Progress as people see it: a bar on a terminal, plain lines elsewhere."""

import io
import re

import pytest
from rich.console import Console

from restrain_openrlhf.hook.launch.progress import step_progress
from restrain_openrlhf.records.metrics import StepRow
from tests.command_line import restrain

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


def test_nothing_is_cut_off_on_a_narrow_terminal():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, color_system=None)
    with step_progress("restrain", console) as (_, on_step):
        on_step(StepRow(104, {"timing/step_total": 131.0}, VOTES), 2220)
    text = screen.getvalue()
    words = " ".join(text.split())
    assert "…" not in text
    assert re.search(r"restrain: training .*104/2220 0:00:0\d 131 s a step 3 days, 4:59:56 left majority 0.50", words)
    assert "missing 0.00 top answer 0.20" in words


def test_elsewhere_every_event_is_a_line():
    lines = [re.split(" {2,}", line) for line in shown(False, "voting").splitlines()]
    assert [event for _, event, *_ in lines] == ["run: starting", "run: step 3/20", "run: voting"]
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d", time) for time, *_ in lines)


@pytest.mark.parametrize("terminal", [True, False])
def test_the_time_left_is_that_of_the_steps_that_are_left(terminal):
    """41 steps, of which the first was slow, and the last 21 take 100 s each; 59 are left."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=200, color_system=None)
    with step_progress("run", console) as (_, on_step):
        for step, seconds in enumerate([500, *[90] * 19, *[100] * 21], start=1):
            on_step(StepRow(step, {"timing/step_total": seconds}, VOTES), 100)
    assert "100 s a step  1:38:20 left" in screen.getvalue()


@pytest.mark.host
def test_a_finished_run_says_that_nothing_is_trained(tmp_path, monkeypatch):
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")
    from restrain_openrlhf.hook.launch import train as launch
    from restrain_openrlhf.records.folder import Completion, RunFolder

    folder = RunFolder(tmp_path / "run")

    def trained(*_given, **_more):
        folder.path.mkdir(exist_ok=True)
        folder.mark_completed(Completion(steps=8))
        return folder

    monkeypatch.setattr(launch, "train", trained)
    words = ("train", "cpu/demo", "--set", f"run_dir={tmp_path / 'run'}")
    assert "Nothing was trained" not in restrain(*words).stderr
    assert "Nothing was trained: this run was finished before." in restrain(*words).stderr
