"""Progress as people see it: a bar on a terminal, plain lines elsewhere."""

import io
import os
import re

import pytest
from rich.console import Console

from restrain_openrlhf.commands.options import sampling_progress
from restrain_openrlhf.hook.launch.progress import numbered, step_progress
from restrain_openrlhf.records.metrics import StepRow, WatchedSignal
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


def test_a_terminal_shows_the_step_and_its_votes():
    text = shown(True)
    assert "3/20" in text
    assert "majority 0.50  penalised 0.10" in text


@pytest.mark.parametrize("width", [80, 100, 120])
def test_nothing_is_cut_off_on_a_terminal_of_usual_width(width):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=width, color_system=None)
    with step_progress("restrain", console) as (_, on_step):
        on_step(StepRow(104, {"timing/step_total": 131.0}, VOTES, NEAR_AND_FAR), 2220)
    text = screen.getvalue()
    words = " ".join(text.split())
    assert "…" not in text
    assert re.search(r"restrain: training .*104/2220 0:00:0\d 131 s a step 3 days, 4:59:56 left majority 0.50", words)
    assert "top answer 0.20 KL 0.13, limit 0.15 entropy 0.2, limit 0.25" in words


def test_a_new_phase_starts_without_the_old_ones_total():
    last_frame = shown(True, "voting").rsplit("\r", 1)[-1]
    assert "run: voting" in last_frame
    assert "20" not in last_frame


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


def test_the_last_step_has_no_time_left():
    screen = io.StringIO()
    with step_progress("run", Console(file=screen, force_terminal=False, width=200)) as (_, on_step):
        on_step(StepRow(5, {"timing/step_total": 4.0}, VOTES), 5)
    assert "4 s a step  majority" in screen.getvalue()


def test_phases_are_numbered():
    heard = []
    on_phase = numbered(heard.append, 2)
    on_phase("voting")
    on_phase("training")
    assert heard == ["1 of 2: voting", "2 of 2: training"]


def test_quiet_prints_nothing():
    screen = io.StringIO()
    with step_progress("run", Console(file=screen, quiet=True)) as (on_phase, on_step):
        on_phase("starting")
        on_step(StepRow(1, {}, {**VOTES, "missing_share_of_voters": 1.0}), 1)
    assert screen.getvalue() == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_the_first_step_with_many_missing_answers_is_warned_of_and_no_other(terminal):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=300, color_system=None)
    with step_progress("run", console) as (_, on_step):
        for step, share in enumerate([0.2, 0.21, 0.9], start=1):
            on_step(StepRow(step, {}, {**VOTES, "missing_share_of_voters": share}), 3)
    assert screen.getvalue().count("have no answer and do not vote") == 1
    assert "warning: 21% of the rollouts of step 2" in screen.getvalue()


NEAR_AND_FAR = (
    WatchedSignal("KL", 0.13, 0.0, 0.15),
    WatchedSignal("entropy", 0.2, 1.0, 0.25),
    WatchedSignal("top answer", 0.2, 0.1, 0.5),
)
YELLOW, RED = "\x1b[33m", "\x1b[31m"


def watched(**of_the_console):
    screen = io.StringIO()
    with step_progress("run", Console(file=screen, width=300, **of_the_console)) as (_, on_step):
        on_step(StepRow(3, {}, VOTES, NEAR_AND_FAR), 20)
    return screen.getvalue()


def test_a_terminal_shows_in_colour_what_may_soon_end_the_run():
    text = watched(force_terminal=True, color_system="standard")
    assert f"{YELLOW}KL 0.13, limit 0.15" in text
    assert f"{RED}entropy 0.2, limit 0.25" in text
    assert "limit 0.5" not in text


def test_without_colour_it_is_shown_in_words(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    text = watched(force_terminal=True, color_system="standard")
    assert "KL 0.13, limit 0.15" in text
    assert YELLOW not in text
    assert RED not in text


def test_a_log_has_no_more_than_its_line():
    (line,) = watched(force_terminal=False).splitlines()
    assert line.endswith("top answer 0.20")


def test_on_a_terminal_vllm_prints_only_its_errors(monkeypatch):
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "noted, so that the process has its own again")
    for terminal, level in ((True, "ERROR"), (False, None)):
        monkeypatch.delenv("VLLM_LOGGING_LEVEL", raising=False)
        sampling_progress(Console(force_terminal=terminal, quiet=True))
        assert os.environ.get("VLLM_LOGGING_LEVEL") == level
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "INFO")
    sampling_progress(Console(force_terminal=True, quiet=True))
    assert os.environ["VLLM_LOGGING_LEVEL"] == "INFO", "as its user says"


@pytest.mark.host
def test_a_finished_run_says_that_nothing_is_trained(tmp_path, monkeypatch):
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")
    from restrain_openrlhf.hook.launch import train as launch
    from restrain_openrlhf.records.folder import Completion, RunFolder

    folder = RunFolder(tmp_path / "run")
    monkeypatch.setattr(launch, "train", lambda *_given, **_more: folder)
    words = ("train", "cpu/demo", "--set", f"run_dir={tmp_path / 'run'}")
    assert "Nothing was trained" not in restrain(*words).stderr
    folder.path.mkdir()
    folder.mark_completed(Completion(steps=8, stopped=None))
    assert "Nothing was trained: this run was finished before." in restrain(*words).stderr
