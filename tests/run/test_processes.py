"""Our commands in processes of their own: together on all GPUs, the first failure told, none left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from restrain_openrlhf.errors import RunError
from restrain_openrlhf.run import processes
from restrain_openrlhf.run.processes import Command, engine_gpus, run_command, run_on_all_gpus, run_together


def test_engines_of_several_gpus_share_none():
    assert engine_gpus(("0", "1", "2", "3", "4"), 2) == [("0", "1"), ("2", "3")]
    assert engine_gpus((), 1) == engine_gpus(("0",), 2) == []


def test_a_command_that_fails_is_told_with_its_last_lines(tmp_path):
    with pytest.raises(RunError, match=r"`restrain train` stopped with status 2[\s\S]*no such file[\s\S]*Log: "):
        run_command(["train", str(tmp_path / "absent.yaml")], tmp_path / "log")


def test_one_process_per_engine_each_with_its_gpus_and_its_part(tmp_path, monkeypatch):
    started: list[Command] = []
    monkeypatch.setattr(processes, "visible_gpus", lambda: ("4", "5", "6", "7"))
    monkeypatch.setattr(processes, "run_together", started.extend)
    assert run_on_all_gpus(["reference", "--out", "x"], tmp_path / "sampling.log", 2) == 2
    assert [command.words[-2:] for command in started] == [["--shard", "0/2"], ["--shard", "1/2"]]
    assert [command.environment for command in started] == [
        {"CUDA_VISIBLE_DEVICES": "4,5"},
        {"CUDA_VISIBLE_DEVICES": "6,7"},
    ]
    assert [command.log.name for command in started] == ["sampling.0.log", "sampling.1.log"]


@pytest.mark.parametrize("gpus", [(), ("0",), ("0", "1")])
def test_without_several_engines_the_command_runs_as_it_is(tmp_path, monkeypatch, gpus):
    started: list[Command] = []
    monkeypatch.setattr(processes, "visible_gpus", lambda: gpus)
    monkeypatch.setattr(processes, "run_together", started.extend)
    assert run_on_all_gpus(["reference"], tmp_path / "log", 2) == 1
    assert started == [Command(["reference"], tmp_path / "log")]


def test_the_first_failure_ends_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "MODULE", "tests.run.sleeper")
    start, started = processes._start, []
    monkeypatch.setattr(processes, "_start", lambda command: started.append(start(command)) or started[-1])
    with pytest.raises(RunError, match="status 3"):
        run_together([Command(["600"], tmp_path / "a"), Command(["0", "3"], tmp_path / "b")])
    assert [process.returncode for process in started] == [-signal.SIGTERM, 3]


def test_sigterm_ends_the_commands_too(tmp_path):
    script = (
        "from pathlib import Path\n"
        "from restrain_openrlhf.run import processes\n"
        "processes.MODULE = 'tests.run.sleeper'\n"
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
    assert not Path(f"/proc/{child}").exists() or is_zombie(child)


def is_zombie(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
