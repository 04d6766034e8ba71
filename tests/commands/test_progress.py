"""Progress as people see it."""

import io
import re

import pytest
from rich.console import Console

from restrain_openrlhf.hook.launch.progress import StepProgress
from restrain_openrlhf.records.metrics import StepRow
from tests.command_line import restrain

VOTES = {
    "majority_share_mean": 0.5,
    "low_consensus_share": 0.1,
    "missing_share_of_voters": 0.0,
    "top_answer_share": 0.2,
}


def printed(steps, total, terminal=False, width=200):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=width, color_system=None)
    progress = StepProgress("run", console)
    progress.on_phase("starting")
    for row in steps:
        progress.on_step(row, total)
    return screen.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_every_event_is_a_line_with_its_time_and_nothing_is_cut_off_on_a_narrow_terminal(terminal):
    lines = printed([StepRow(104, {"timing/step_total": 131.0}, VOTES)], 2220, terminal, width=60).splitlines()
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d", line[:8]) for line in lines)
    assert [line[8:] for line in lines] == [
        "  run: starting",
        "  run: step 104/2220  131 s a step  3 days, 4:59:56 left  "
        "majority 0.50  penalised 0.10  missing 0.00  top answer 0.20",
    ]


def test_the_time_left_is_that_of_the_steps_that_are_left():
    """41 steps, of which the first was slow, and the last 21 take 100 s each; 59 are left."""
    seconds = [500, *[90] * 19, *[100] * 21]
    steps = [StepRow(step, {"timing/step_total": each}, VOTES) for step, each in enumerate(seconds, start=1)]
    assert "100 s a step  1:38:20 left" in printed(steps, 100)


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
