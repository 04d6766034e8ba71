"""The lock of compiled extensions: one process at a time, and no longer than that process lives."""

import subprocess
import sys

import pytest

from restrain_openrlhf.machine.extension_lock import ProcessLock

HOLD = "\n".join(
    [
        "import sys, time",
        "from restrain_openrlhf.machine.extension_lock import ProcessLock",
        "print(ProcessLock(sys.argv[1]).try_acquire(), flush=True)",
        "time.sleep(600)",
    ]
)


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "lock")], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "True\n"
    yield process
    process.kill()
    process.wait()


def test_one_process_has_the_lock(holder, tmp_path):
    assert not ProcessLock(str(tmp_path / "lock")).try_acquire()


def test_a_killed_process_holds_nobody_up(holder, tmp_path):
    holder.kill()
    holder.wait()
    lock = ProcessLock(str(tmp_path / "lock"))
    lock.wait()
    assert lock.try_acquire()


def test_what_a_killed_process_left_of_torchs_own_lock_holds_nobody_up(tmp_path):
    (tmp_path / "lock").touch()
    lock = ProcessLock(str(tmp_path / "lock"))
    lock.wait()
    assert lock.try_acquire()


def test_a_lock_that_was_given_back_can_be_taken_again(tmp_path):
    first, second = ProcessLock(str(tmp_path / "lock")), ProcessLock(str(tmp_path / "lock"))
    assert first.try_acquire()
    assert not second.try_acquire()
    first.release()
    assert second.try_acquire()


def test_torch_builds_extensions_under_it():
    """In a process of its own: torch stays adapted."""
    pytest.importorskip("torch", reason="needs the training stack: make install")
    program = [
        "from restrain_openrlhf.machine.devices import detect",
        "detect().install()",
        "from torch.utils import cpp_extension",
        "print(cpp_extension.FileBaton.__name__)",
    ]
    done = subprocess.run([sys.executable, "-c", "\n".join(program)], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == ProcessLock.__name__
