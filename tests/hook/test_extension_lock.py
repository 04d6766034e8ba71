"""The lock of compiled extensions: one process at a time, and no longer than that process lives."""

import subprocess
import sys

import pytest

from restrain_openrlhf.machine.extension_lock import ProcessLock

TAKE = "\n".join(
    [
        "import sys, time",
        "from restrain_openrlhf.machine.extension_lock import ProcessLock",
        "print(ProcessLock(sys.argv[1]).try_acquire(), flush=True)",
        "time.sleep(600)",
    ]
)
# Torch's own way through a build and a load, with a build that takes as long as it is told and leaves a file.
BUILD = """
import sys, time
from pathlib import Path
from torch.utils import cpp_extension
from restrain_openrlhf.machine.devices import detect
detect().install()
folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
def build(**_):
    print("builds", flush=True)
    time.sleep(seconds)
    (folder / "x.so").touch()
cpp_extension._write_ninja_file_and_build_library = build
cpp_extension._import_module_from_library = lambda *_: print("loads", (folder / "x.so").exists(), flush=True)
print("asks", flush=True)
cpp_extension.load("x", [], build_directory=str(folder))
"""


@pytest.fixture
def started():
    """Starts a program in a process of its own, which is killed after the test."""
    processes = []

    def start(program, *words):
        command = [sys.executable, "-c", program, *map(str, words)]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


def test_a_second_process_gets_the_lock_when_the_first_ends(started, tmp_path):
    """Also where the first was killed."""
    first = started(TAKE, tmp_path / "lock")
    assert first.stdout.readline() == "True\n"
    second = started(TAKE, tmp_path / "lock")
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(1)
    first.kill()
    assert second.stdout.readline() == "True\n"


def test_what_a_killed_process_left_of_torchs_own_lock_holds_nobody_up(tmp_path):
    (tmp_path / "lock").touch()
    assert ProcessLock(str(tmp_path / "lock")).try_acquire()


def test_a_lock_that_was_given_back_can_be_taken_again(tmp_path):
    first = ProcessLock(str(tmp_path / "lock"))
    assert first.try_acquire()
    first.release()
    assert ProcessLock(str(tmp_path / "lock")).try_acquire()


def test_who_waited_for_a_build_that_was_killed_builds_itself(started, tmp_path):
    """Torch would load what is not there."""
    pytest.importorskip("torch", reason="needs the training stack: make install")
    first = started(BUILD, tmp_path, 600)
    assert [first.stdout.readline(), first.stdout.readline()] == ["asks\n", "builds\n"]
    second = started(BUILD, tmp_path, 0)
    assert second.stdout.readline() == "asks\n"
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(1)
    first.kill()
    assert second.communicate()[0] == "builds\nloads True\n"
