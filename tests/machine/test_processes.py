"""Our commands in processes of their own: together on all GPUs, the first failure told, none left behind."""

import signal
import subprocess
import sys
import time

import pytest

from restrain_openrlhf.commands.gpu_check import run_module
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.machine import processes
from restrain_openrlhf.machine.processes import Command, run_command, run_together
from tests.conftest import ROOT
from tests.processes import is_alive


def test_a_command_that_fails_is_told_with_its_last_lines(tmp_path):
    with pytest.raises(RunError, match=r"`restrain train` stopped with status 2[\s\S]*no such file[\s\S]*Log: "):
        run_command(["train", str(tmp_path / "absent.yaml")], tmp_path / "log")


@pytest.mark.parametrize("path", [str(ROOT), f":{ROOT}", f"{ROOT}:"])
def test_no_file_of_the_working_folder_is_taken_for_a_module(tmp_path, monkeypatch, path):
    for name in ("types", "gen", "yaml", "typer"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('shadowed')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", path)
    run_command(["--version"], tmp_path / "log")
    run_module("restrain_openrlhf.commands.main", ["--version"], tmp_path / "check.log")
    assert "restrain" in (tmp_path / "log").read_text()
    assert (tmp_path / "log").read_text() == (tmp_path / "check.log").read_text()


def test_a_command_takes_the_next_free_slot_and_all_are_run(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "MODULE", "tests.machine.sleeper")
    begin, started, polls = processes.start_module, [], []

    def start(module, words, log, slot, **how):
        started.append((Command(words, log), slot))
        return begin(module, words, log, slot, **how)

    monkeypatch.setattr(processes, "start_module", start)
    # The second goes on until the third has begun.
    until_third = [str(tmp_path / "c")]
    commands = [Command(["0"], tmp_path / "a"), Command(until_third, tmp_path / "b"), Command(["0"], tmp_path / "c")]
    run_together(commands, [{"SLOT": "1"}, {"SLOT": "2"}], lambda: polls.append(1))
    assert [command for command, _ in started] == commands
    assert [slot["SLOT"] for _, slot in started] == ["1", "2", "1"], "the third took the place of the first"
    assert polls


def test_the_first_failure_ends_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "MODULE", "tests.machine.sleeper")
    begin, started = processes.start_module, []
    monkeypatch.setattr(
        processes, "start_module", lambda *words, **how: started.append(begin(*words, **how)) or started[-1]
    )
    with pytest.raises(RunError, match="status 3"):
        run_together([Command(["600"], tmp_path / "a"), Command(["0", "3"], tmp_path / "b")])
    assert [process.returncode for process in started] == [-signal.SIGTERM, 3]


def test_sigterm_ends_the_commands_too(tmp_path):
    script = (
        "from pathlib import Path\n"
        "from restrain_openrlhf.machine import processes\n"
        "processes.MODULE = 'tests.machine.sleeper'\n"
        f"processes.run_command(['600'], Path({str(tmp_path / 'log')!r}))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    log = tmp_path / "log"
    while not (log.exists() and log.read_text().strip()):
        assert process.poll() is None
        time.sleep(0.05)
    child = int(log.read_text())
    process.send_signal(signal.SIGTERM)
    process.wait()
    assert not is_alive(child)
