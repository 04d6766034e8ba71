"""The lock of compiled extensions: one process at a time, and no longer than that process lives."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from restrain_openrlhf.machine.cuda import ProcessLock

# Keeps the lock until it is killed.
TAKE = """
import sys, time
from restrain_openrlhf.machine.cuda import ProcessLock
print(ProcessLock(sys.argv[1]).try_acquire(), flush=True)
time.sleep(600)
"""


def test_the_lock_ends_with_its_process(tmp_path):
    """Whoever waits for a build that is killed builds itself; what torch's own lock has left holds nobody up."""
    path = tmp_path / "lock"
    path.touch()
    command = [sys.executable, "-c", TAKE, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first, ThreadPoolExecutor(1) as pool:
        assert first.stdout.readline() == "True\n"
        waiting = pool.submit(ProcessLock(str(path)).try_acquire)
        with pytest.raises(TimeoutError):
            waiting.result(1)
        first.kill()
        assert waiting.result(30)
